// Calls kernels from Python with arrays of arguments, without converting through type tables.
// Python.h is included before this file, by its path.
#include <stdint.h>
#include <stdlib.h>

enum { FEW = 256 };

struct Step {
  int (*function)(const int64_t*);
  int32_t arguments, first;  // its arguments are at places[first], places[first + 1], ...
};

// Kernels that run one after the other. `kinds` has a letter per argument: t for a tensor, whose
// address is passed, i for an integer, n for a floating-point number.
struct Launch {
  const char* kinds;
  const Step* steps;
  const int32_t* places;
  int32_t arguments, count, most;  // `most`: the largest number of arguments of a step
};

static void* (*tcd_address)(PyObject*);
static PyTypeObject* tcd_plain[2];  // types of tensors that are known to have memory

static int64_t tcd_tensor(PyObject* tensor) {
  if (Py_TYPE(tensor) == tcd_plain[0] || Py_TYPE(tensor) == tcd_plain[1]) {
    try {
      return (int64_t)tcd_address(tensor);
    } catch (...) {  // the Python method below raises a clearer error
    }
  }
  PyObject* address = PyObject_CallMethod(tensor, "data_ptr", 0);
  if (!address) return 0;
  const int64_t value = (int64_t)PyLong_AsUnsignedLongLongMask(address);
  Py_DECREF(address);
  return value;
}

static bool tcd_read(const Launch* launch, PyObject* const* args, int64_t* values) {
  for (int32_t i = 0; i < launch->arguments; ++i) {
    if (launch->kinds[i] == 't') {
      values[i] = tcd_tensor(args[i]);
    } else if (launch->kinds[i] == 'i') {
      values[i] = (int64_t)PyLong_AsUnsignedLongLongMask(args[i]);
    } else {
      const double number = PyFloat_AsDouble(args[i]);
      __builtin_memcpy(values + i, &number, 8);
    }
  }
  return !PyErr_Occurred();
}

// 0, or the status of the first kernel that failed, with its position above the lowest eight bits.
static int64_t tcd_run(const Launch* launch, const int64_t* values, int64_t* given) {
  if (launch->count == 1) return launch->steps[0].function(values);
  for (int32_t k = 0; k < launch->count; ++k) {
    const Step step = launch->steps[k];
    for (int32_t i = 0; i < step.arguments; ++i) given[i] = values[launch->places[step.first + i]];
    if (const int status = step.function(given)) return (int64_t)k << 8 | (status & 255);
  }
  return 0;
}

static PyObject* tcd_call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const Launch* launch = (const Launch*)PyCapsule_GetPointer(self, "launch");
  if (!launch) return 0;
  if (count != launch->arguments) {
    PyErr_Format(PyExc_TypeError, "kernels take %d arguments, not %zd", launch->arguments, count);
    return 0;
  }
  int64_t few[2 * FEW], *values = few, *given = few + FEW;
  int64_t* many = 0;
  if (launch->arguments > FEW || launch->most > FEW) {
    many = (int64_t*)malloc(sizeof(int64_t) * (launch->arguments + launch->most));
    if (!many) return PyErr_NoMemory();
    values = many, given = many + launch->arguments;
  }
  int64_t status = 0;
  const bool read = tcd_read(launch, args, values);
  if (read) {
    Py_BEGIN_ALLOW_THREADS
    status = tcd_run(launch, values, given);
    Py_END_ALLOW_THREADS
  }
  free(many);
  return read ? PyLong_FromLongLong(status) : 0;
}

static PyMethodDef tcd_method = {"kernels", (PyCFunction)(void (*)(void))tcd_call, METH_FASTCALL, 0};

static void tcd_forget(PyObject* capsule) { free(PyCapsule_GetPointer(capsule, "launch")); }

// A function that runs a launch. It keeps a copy of the launch, which has `places` places.
extern "C" PyObject* tcd_bind(const Launch* launch, int32_t places) {
  const size_t steps = sizeof(Step) * launch->count, of_places = sizeof(int32_t) * places;
  char* const memory = (char*)malloc(sizeof(Launch) + steps + of_places + launch->arguments);
  if (!memory) return PyErr_NoMemory();
  Launch* const own = (Launch*)memory;
  char* const first = memory + sizeof(Launch);
  *own = *launch;
  own->steps = (const Step*)__builtin_memcpy(first, launch->steps, steps);
  own->places = (const int32_t*)__builtin_memcpy(first + steps, launch->places, of_places);
  own->kinds = (const char*)__builtin_memcpy(first + steps + of_places, launch->kinds,
                                             launch->arguments);
  PyObject* capsule = PyCapsule_New(own, "launch", tcd_forget);
  if (!capsule) {
    free(memory);
    return 0;
  }
  PyObject* function = PyCFunction_New(&tcd_method, capsule);
  Py_DECREF(capsule);
  return function;
}

extern "C" void tcd_start(void* address, PyObject* tensor, PyObject* parameter) {
  tcd_address = (void* (*)(PyObject*))address;
  tcd_plain[0] = (PyTypeObject*)tensor;
  tcd_plain[1] = (PyTypeObject*)parameter;
}
