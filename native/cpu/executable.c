/* Plans as Python callables: from arrays to addresses, and back.
 *
 * They are builtins and not functions of cffi, which would release the GIL at every call:
 * to get it back beside a busy thread takes longer than a small plan.
 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL adarray_executable_api
#define NO_IMPORT_ARRAY
#include <numpy/arrayobject.h>
#include "executable.h"
#include "jit.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NAME "adarray.plan"
#define POOLED (1 << 16) /* bytes from which on memory comes from the pool */

/* NumPy's table of functions; its macros name it so. Set by adarray_executable_install. */
void **PyArray_API;
int PyArray_RUNTIME_VERSION;
static uintptr_t numpy_api;

typedef struct {
    Plan *plan;
    PyObject *consts, *descrs; /* tuples */
    _Atomic(Instance *) spare; /* for the next run; a second one at the same time makes its own */
} Executable;

/* What `self` of the callables is: (capsule of the Executable, functions, report). Python's
 * garbage collector sees through tuples, and what `report` refers to may refer to us. */
enum { SELF_CAPSULE, SELF_FUNCTIONS, SELF_REPORT };

static PyArray_Descr *descr_at(const Executable *e, int64_t i)
{
    return (PyArray_Descr *)PyTuple_GetItem(e->descrs, (Py_ssize_t)i);
}

/* -- inputs --------------------------------------------------------------------------------- */

/* Write a number into the plan's memory; 0 with an exception if that cannot be. */
static int write_number(const Executable *e, const Input *in, PyObject *value, char *to)
{
    if (in->kind == 'f' && in->itemsize >= 4 && in->itemsize <= 8) {
        const double number = PyFloat_AsDouble(value);
        const float single = (float)number;
        if (number == -1.0 && PyErr_Occurred()) return 0;
        if (in->itemsize == 8) memcpy(to, &number, 8);
        else memcpy(to, &single, 4);
        return 1;
    }
    if (in->kind == 'i' && in->itemsize == 8 && PyLong_CheckExact(value)) {
        const long long number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) return 0;
        memcpy(to, &number, 8);
        return 1;
    }
    PyArray_Descr *descr = descr_at(e, in->descr);
    if (descr == NULL) return 0;
    Py_INCREF((PyObject *)descr);
    PyObject *array = PyArray_FromAny(value, descr, 0, 0, NPY_ARRAY_CARRAY, NULL);
    if (array == NULL) return 0;
    memcpy(to, PyArray_BYTES((PyArrayObject *)array), (size_t)in->itemsize);
    Py_DECREF(array);
    return 1;
}

static int fits(const Input *in, PyArrayObject *x)
{
    const PyArray_Descr *d = PyArray_DESCR(x);
    int64_t size = 1;
    for (int i = 0; i < PyArray_NDIM(x); i++) size *= PyArray_DIM(x, i);
    return d->kind == (char)in->kind && PyDataType_ELSIZE(d) == in->itemsize && size == in->size
        && PyArray_ISNBO(d->byteorder) && (PyArray_FLAGS(x) & NPY_ARRAY_ALIGNED);
}

/* Return the address of an input's first element; NULL with an exception. */
static char *read_input(const Executable *e, Instance *x, PyObject *arrays, int64_t i)
{
    const Input *in = &e->plan->inputs[i];
    PyObject *value = PyList_GetItem(arrays, (Py_ssize_t)i);
    if (value == NULL) return NULL;
    if (PyArray_Check(value)) {
        if (fits(in, (PyArrayObject *)value)) return PyArray_BYTES((PyArrayObject *)value);
    } else if (in->place >= 0) {
        char *to = x->memory + in->place;
        return write_number(e, in, value, to) ? to : NULL;
    }
    PyErr_Format(PyExc_TypeError,
                 "compiled plan: input %d is not the aligned array of %lld elements of kind '%c%lld' "
                 "that the plan was made for; make a plan for this signature",
                 (int)i, (long long)in->size, (int)in->kind, (long long)in->itemsize);
    return NULL;
}

/* -- results -------------------------------------------------------------------------------- */

static PyObject *new_array(const Executable *e, const View *v, int ordered)
{
    PyArray_Descr *descr = descr_at(e, v->descr);
    if (descr == NULL) return NULL;
    Py_INCREF((PyObject *)descr);
    return PyArray_NewFromDescr(&PyArray_Type, descr, (int)v->nd, (const npy_intp *)v->dims,
                                ordered ? NULL : (const npy_intp *)v->strides, NULL, 0, NULL);
}

/* Return an input as the result that is written into it; the caller of the plan has given it
 * up, and no step reads it later than it should. */
static PyObject *donated(const Executable *e, const Result *r, PyObject *arrays)
{
    PyObject *array = PyList_GetItem(arrays, (Py_ssize_t)r->donor);
    if (array == NULL) return NULL;
    if (!PyArray_Check(array) || !fits(&e->plan->inputs[r->donor], (PyArrayObject *)array)
        || !PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_CARRAY)) {
        PyErr_Format(PyExc_TypeError,
                     "compiled plan: input %d is donated, and not a writeable array in C order",
                     (int)r->donor);
        return NULL;
    }
    Py_INCREF(array);
    return array;
}

static PyObject *new_results(const Executable *e, PyObject *arrays)
{
    const Plan *plan = e->plan;
    PyObject *list = PyList_New((Py_ssize_t)plan->n_results);
    for (int64_t i = 0; list != NULL && i < plan->n_results; i++) {
        const Result *r = &plan->results[i];
        if (r->kind == RESULT_SCALAR) continue;
        PyObject *array = r->donor >= 0 ? donated(e, r, arrays)
                                        : new_array(e, &r->view, (int)r->ordered);
        if (array == NULL || PyList_SetItem(list, (Py_ssize_t)i, array) < 0) Py_CLEAR(list);
    }
    return list;
}

static int fill_scalars(const Executable *e, const Instance *x, PyObject *list)
{
    const Plan *plan = e->plan;
    for (int64_t i = 0; i < plan->n_results; i++) {
        const Result *r = &plan->results[i];
        if (r->kind != RESULT_SCALAR) continue;
        PyObject *scalar = PyArray_Scalar(x->base[r->view.slot] + r->view.offset,
                                          descr_at(e, r->view.descr), NULL);
        if (scalar == NULL || PyList_SetItem(list, (Py_ssize_t)i, scalar) < 0) return 0;
    }
    return 1;
}

/* Set the addresses of inputs and results. */
static int bind(const Executable *e, Instance *x, PyObject *arrays, PyObject *list)
{
    const Plan *plan = e->plan;
    for (int64_t i = 0; i < plan->n_slots; i++) {
        const Slot *s = &plan->slots[i];
        if (s->kind == SLOT_INPUT) {
            x->base[i] = read_input(e, x, arrays, s->index);
            if (x->base[i] == NULL) return 0;
        } else if (s->kind == SLOT_RESULT) {
            PyObject *array = PyList_GetItem(list, (Py_ssize_t)s->index);
            if (array == NULL) return 0;
            x->base[i] = PyArray_BYTES((PyArrayObject *)array);
        }
    }
    return 1;
}

/* -- calls of Python --------------------------------------------------------------------------- */

/* Return an operand: a view of an input or a constant, since the function may hold on to
 * those, and a copy of what lies in memory that is used again. */
static PyObject *operand(const Executable *e, const Instance *x, const View *v, PyObject *arrays)
{
    const Slot *s = &e->plan->slots[v->slot];
    char *data = x->base[v->slot] + v->offset;
    PyArray_Descr *descr = descr_at(e, v->descr);
    PyObject *owner = NULL;
    if (descr == NULL) return NULL;
    if (s->kind == SLOT_INPUT) owner = PyList_GetItem(arrays, (Py_ssize_t)s->index);
    if (s->kind == SLOT_CONST) owner = PyTuple_GetItem(e->consts, (Py_ssize_t)s->index);
    if (PyErr_Occurred()) return NULL;
    Py_INCREF((PyObject *)descr);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, (int)v->nd,
                                          (const npy_intp *)v->dims,
                                          (const npy_intp *)v->strides, data, 0, NULL);
    if (view == NULL) return NULL;
    if (owner != NULL && PyArray_Check(owner)) {
        Py_INCREF(owner);
        if (PyArray_SetBaseObject((PyArrayObject *)view, owner) == 0) return view;
        Py_DECREF(view);
        return NULL;
    }
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)view, NPY_CORDER);
    Py_DECREF(view);
    return copy;
}

static int store_result(const Executable *e, Instance *x, const View *v, PyObject *array)
{
    const PyArray_Descr *descr = descr_at(e, v->descr);
    int64_t bytes = descr ? PyDataType_ELSIZE(descr) : 0;
    for (int64_t i = 0; i < v->nd; i++) bytes *= v->dims[i];
    if (array == NULL || !PyArray_Check(array)
        || !PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_C_CONTIGUOUS)
        || PyArray_NBYTES((PyArrayObject *)array) != bytes) {
        PyErr_SetString(PyExc_TypeError, "compiled plan: a called function gave another result "
                                         "than when it was recorded; report this");
        return 0;
    }
    memcpy(x->base[v->slot] + v->offset, PyArray_BYTES((PyArrayObject *)array), (size_t)bytes);
    return 1;
}

/* Call a Python function on operands; it returns a list of arrays in C order. */
static int call_step(const Executable *e, Instance *x, const Step *s, PyObject *functions,
                     PyObject *arrays)
{
    PyObject *function = PyTuple_GetItem(functions, (Py_ssize_t)s->call.function);
    PyObject *list = PyList_New((Py_ssize_t)s->call.operands), *results = NULL;
    int ok = function != NULL && list != NULL;
    for (int64_t i = 0; ok && i < s->call.operands; i++) {
        PyObject *array = operand(e, x, &s->call.views[i], arrays);
        ok = array != NULL && PyList_SetItem(list, (Py_ssize_t)i, array) == 0;
    }
    if (ok) results = PyObject_CallFunctionObjArgs(function, list, NULL);
    ok = results != NULL;
    for (int64_t i = 0; ok && i < s->call.results; i++) {
        PyObject *result = PyList_GetItem(results, (Py_ssize_t)i);
        ok = result != NULL && store_result(e, x, &s->call.views[s->call.operands + i], result);
    }
    Py_XDECREF(results);
    Py_XDECREF(list);
    return ok;
}

/* -- running -------------------------------------------------------------------------------------- */

/* Run all steps; the code of a kernel that failed, or -1 with an exception. */
static int64_t run_steps(const Executable *e, Instance *x, PyObject *functions, PyObject *arrays,
                         int *flags, int64_t *stamps)
{
    const Plan *plan = e->plan;
    int64_t i = 0, code = 0;
    while (i < plan->n_steps) {
        PyThreadState *state = plan->release ? PyEval_SaveThread() : NULL;
        code = plan_run(plan, x, &i, flags, stamps);
        if (state != NULL) PyEval_RestoreThread(state);
        if (code != 0 || i == plan->n_steps) break;
        if (!call_step(e, x, &plan->steps[i], functions, arrays)) return -1;
        i++;
    }
    return code;
}

/* Return the results as a list, or what `report` makes of flags and failures. */
static PyObject *compute(const Executable *e, Instance *x, PyObject *self, PyObject *arrays,
                         int64_t *stamps)
{
    int flags = 0;
    PyObject *report = PyTuple_GetItem(self, SELF_REPORT);
    PyObject *functions = PyTuple_GetItem(self, SELF_FUNCTIONS);
    PyObject *list = instance_fill(e->plan, x) ? new_results(e, arrays) : PyErr_NoMemory();
    if (list == NULL) return NULL;
    if (!bind(e, x, arrays, list)) goto failed;
    const int64_t code = run_steps(e, x, functions, arrays, &flags, stamps);
    if (code < 0 || (code == 0 && !fill_scalars(e, x, list))) goto failed;
    if (stamps) stamps[e->plan->n_origins] = plan_clock();
    if (code != 0 || flags != 0) {
        PyObject *answer = PyObject_CallFunction(report, "OiLO", arrays, flags, (long long)code,
                                                 code ? Py_None : list);
        Py_DECREF(list);
        return answer;
    }
    return list;
failed:
    Py_DECREF(list);
    return NULL;
}

static PyObject *execute(PyObject *self, PyObject *arrays, int64_t *stamps)
{
    Executable *e = PyCapsule_GetPointer(PyTuple_GetItem(self, SELF_CAPSULE), NAME);
    if (e == NULL) return NULL;
    if (!PyList_Check(arrays) || PyList_Size(arrays) < (Py_ssize_t)e->plan->n_inputs) {
        PyErr_Format(PyExc_TypeError, "compiled plan: expected a list of at least %d inputs",
                     (int)e->plan->n_inputs);
        return NULL;
    }
    Instance *x = atomic_exchange(&e->spare, NULL);
    if (x == NULL) x = instance_new(e->plan);
    if (x == NULL) return PyErr_NoMemory();
    void *before = e->plan->pooled ? pool_use(numpy_api) : NULL;
    PyObject *results = compute(e, x, self, arrays, stamps);
    pool_restore(numpy_api, before);
    instance_drain(e->plan, x);
    Instance *none = NULL;
    if (!atomic_compare_exchange_strong(&e->spare, &none, x)) instance_free(e->plan, x);
    return results;
}

static PyObject *run(PyObject *self, PyObject *arrays) { return execute(self, arrays, NULL); }

static PyObject *timed(PyObject *self, PyObject *arrays)
{
    Executable *e = PyCapsule_GetPointer(PyTuple_GetItem(self, SELF_CAPSULE), NAME);
    if (e == NULL) return NULL;
    const int64_t n = e->plan->n_origins;
    int64_t *stamps = calloc((size_t)n + 1, sizeof *stamps);
    if (stamps == NULL) return PyErr_NoMemory();
    PyObject *results = execute(self, arrays, stamps), *times = NULL;
    if (results != NULL) times = PyTuple_New((Py_ssize_t)n + 1);
    if (stamps[n] == 0) stamps[n] = plan_clock();
    for (int64_t i = n; times != NULL && i >= 0; i--) {
        if (stamps[i] == 0) stamps[i] = stamps[i + 1]; /* a step with nothing to do */
        PyObject *time = PyLong_FromLongLong(stamps[i]);
        if (time == NULL || PyTuple_SetItem(times, (Py_ssize_t)i, time) < 0) Py_CLEAR(times);
    }
    free(stamps);
    PyObject *both = times ? PyTuple_Pack(2, results, times) : NULL;
    Py_XDECREF(results);
    Py_XDECREF(times);
    return both;
}

/* -- making ------------------------------------------------------------------------------------------ */

static void destroy(PyObject *capsule)
{
    Executable *e = PyCapsule_GetPointer(capsule, NAME);
    Instance *spare = atomic_exchange(&e->spare, NULL);
    if (spare != NULL) instance_free(e->plan, spare);
    if (e->plan->pooled) pool_drop();
    plan_free(e->plan);
    Py_DECREF(e->consts);
    Py_DECREF(e->descrs);
    free(e);
}

static int bind_consts(const Plan *plan, PyObject *consts)
{
    for (int64_t i = 0; i < plan->n_slots; i++) {
        if (plan->slots[i].kind != SLOT_CONST) continue;
        PyObject *array = PyTuple_GetItem(consts, (Py_ssize_t)plan->slots[i].index);
        if (array == NULL) return 0;
        plan->consts[i] = PyArray_BYTES((PyArrayObject *)array);
    }
    return 1;
}

static int uses_pool(const Executable *e)
{
    const Plan *plan = e->plan;
    if (plan->arena + plan->workspace * plan->threads >= POOLED) return 1;
    for (int64_t i = 0; i < plan->n_results; i++) {
        const View *v = &plan->results[i].view;
        if (plan->results[i].donor >= 0) continue;
        int64_t bytes = PyDataType_ELSIZE(descr_at(e, v->descr));
        for (int64_t d = 0; d < v->nd; d++) bytes *= v->dims[d];
        if (bytes >= POOLED) return 1;
    }
    return 0;
}

static PyMethodDef run_method = {
    "run", run, METH_O, "run(arrays, /)\n--\n\nRun the plan on a list of arrays; return a list."};
static PyMethodDef timed_method = {
    "timed", timed, METH_O,
    "timed(arrays, /)\n--\n\nReturn the results and, in nanoseconds, when each step began and the "
    "last one ended."};

/* make(words, consts, descrs, functions, report) -> (run, timed) */
static PyObject *make(PyObject *module, PyObject *args)
{
    const char *words;
    Py_ssize_t bytes;
    PyObject *consts, *descrs, *functions, *report;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#OOOO", &words, &bytes, &consts, &descrs, &functions, &report))
        return NULL;
    Executable *e = calloc(1, sizeof *e);
    if (e == NULL) return PyErr_NoMemory();
    e->plan = plan_read((const int64_t *)words, (int64_t)(bytes / 8));
    if (e->plan == NULL || !bind_consts(e->plan, consts)) {
        if (e->plan) plan_free(e->plan);
        free(e);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "compiled plan: its words cannot be read");
        return NULL;
    }
    e->consts = consts, e->descrs = descrs;
    Py_INCREF(consts);
    Py_INCREF(descrs);
    e->plan->pooled = uses_pool(e);
    if (e->plan->pooled) pool_hold();
    PyObject *capsule = PyCapsule_New(e, NAME, destroy), *callables = NULL;
    PyObject *self = capsule ? PyTuple_Pack(3, capsule, functions, report) : NULL;
    PyObject *first = self ? PyCFunction_NewEx(&run_method, self, NULL) : NULL;
    PyObject *second = first ? PyCFunction_NewEx(&timed_method, self, NULL) : NULL;
    if (second) callables = PyTuple_Pack(2, first, second);
    Py_XDECREF(second);
    Py_XDECREF(first);
    Py_XDECREF(self);
    Py_XDECREF(capsule);
    return callables;
}

static PyMethodDef make_method = {"make", make, METH_VARARGS, NULL};

int adarray_executable_install(uintptr_t api, uintptr_t dict)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    int result = -1;
    numpy_api = api;
    PyArray_API = PyCapsule_GetPointer((PyObject *)api, NULL);
    PyObject *function = PyArray_API ? PyCFunction_NewEx(&make_method, NULL, NULL) : NULL;
    if (function) result = PyDict_SetItemString((PyObject *)dict, "make", function);
    if (result < 0) PyErr_Clear();
    Py_XDECREF(function);
    PyGILState_Release(state);
    return result;
}
