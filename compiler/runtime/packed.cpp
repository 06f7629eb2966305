// Calls a kernel from Python by an array of its arguments, without a type table on the way.
// Follows Python.h, which is included by its path.
#include <stdint.h>

enum { MOST = 1024 };

struct Kernel {
  int (*function)(const int64_t*);
  int32_t arguments, first_number, numbers;  // numbers stand together and are doubles
};

static PyObject* tcd_call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const Kernel* kernel = (const Kernel*)PyCapsule_GetPointer(self, "kernel");
  if (!kernel) return 0;
  if (count != kernel->arguments || count > MOST) {
    PyErr_Format(PyExc_TypeError, "a kernel takes %d arguments, not %zd", kernel->arguments, count);
    return 0;
  }
  int64_t values[MOST];
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (i < kernel->first_number || i >= kernel->first_number + kernel->numbers) {
      values[i] = (int64_t)PyLong_AsUnsignedLongLongMask(args[i]);
    } else {
      const double number = PyFloat_AsDouble(args[i]);
      __builtin_memcpy(values + i, &number, 8);
    }
  }
  if (PyErr_Occurred()) return 0;
  int status;
  Py_BEGIN_ALLOW_THREADS
  status = kernel->function(values);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(status);
}

static PyMethodDef tcd_method = {"kernel", (PyCFunction)(void (*)(void))tcd_call, METH_FASTCALL, 0};

static void tcd_forget(PyObject* capsule) {
  delete (Kernel*)PyCapsule_GetPointer(capsule, "kernel");
}

extern "C" PyObject* tcd_bind(const Kernel* kernel) {
  PyObject* capsule = PyCapsule_New(new Kernel(*kernel), "kernel", tcd_forget);
  if (!capsule) return 0;
  PyObject* function = PyCFunction_New(&tcd_method, capsule);
  Py_DECREF(capsule);
  return function;
}
