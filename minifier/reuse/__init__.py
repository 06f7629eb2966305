"""Captured graphs that are called again: is what they were captured from still so?"""
