// A launch as a Python function. It converts Python integers directly into the launcher's array,
// without a tuple, a type table or a format string. Included after launcher.cpp.

static PyObject* tcd_call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const Kernel* kernel = (const Kernel*)PyCapsule_GetPointer(self, "kernel");
  if (!kernel) return 0;
  enum { BEFORE = 5 };  // stream, wide, x, y, alone
  int64_t values[MOST + BEFORE];
  const int numbers = kernel->pointers + kernel->sizes + BEFORE;
  if (count > MOST + BEFORE || count != numbers + kernel->numbers) {
    PyErr_Format(PyExc_TypeError, "a launch takes %d arguments, not %zd",
                 numbers + kernel->numbers, count);
    return 0;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (i < numbers) {
      values[i] = (int64_t)PyLong_AsUnsignedLongLongMask(args[i]);
    } else {
      const double number = PyFloat_AsDouble(args[i]);
      __builtin_memcpy(values + i, &number, 8);
    }
  }
  if (PyErr_Occurred()) return 0;
  return PyLong_FromLong(tcd_launch(kernel, (void*)values[0], values[1], values[2], values[3],
                                    values[4], values + BEFORE));
}

static PyMethodDef tcd_method = {"launch", (PyCFunction)(void (*)(void))tcd_call, METH_FASTCALL, 0};

extern "C" PyObject* tcd_bind(Kernel* kernel) {
  PyObject* capsule = PyCapsule_New(kernel, "kernel", 0);
  if (!capsule) return 0;
  PyObject* function = PyCFunction_New(&tcd_method, capsule);
  Py_DECREF(capsule);
  return function;
}
