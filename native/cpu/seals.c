/* Which bytes were written to, and arrays that are read-only meanwhile: seals.h. */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define NO_IMPORT_ARRAY
#include <numpy/ndarraytypes.h>
#include "seals.h"

#ifdef __linux__

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* From <linux/fs.h>, which older systems have without it. */
typedef struct {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} Scan;

#define SCAN _IOWR('f', 16, Scan)
#define WRITTEN (1 << 1)
#define CHECKED (1 << 1) /* fail where no account is kept */

/* So many bytes take longer to ask about than it takes to get the GIL back. */
#define LONG ((uintptr_t)1 << 26)

#define SAMPLES 16
#define SAMPLE 64 /* bytes */

typedef struct {
    PyObject_HEAD
    int pages;
    char written, shares_pages;
    uintptr_t low, high;   /* the bytes */
    uintptr_t first, last; /* the pages that they lie on */
    uintptr_t start, stop; /* the pages that they fill */
    char *ends;            /* what was in the bytes before `start` and from `stop` on */
} Account;

/* Whether a page was written to; it may have been where another mapping is now. The kernel has a
 * short way for pages written to, if nothing else is asked for. */
static int scan_pages(int pages, uintptr_t low, uintptr_t high)
{
    uint64_t region[3];
    Scan scan = {
        .size = sizeof scan, .flags = CHECKED, .start = low, .end = high,
        .vec = (uintptr_t)region, .vec_len = 1, .max_pages = 1,
        .category_mask = WRITTEN, .return_mask = WRITTEN,
    };
    return ioctl(pages, SCAN, &scan) != 0;
}

static int any_written(const Account *a, uintptr_t low, uintptr_t high)
{
    int result;
    if (high - low < LONG) return scan_pages(a->pages, low, high);
    Py_BEGIN_ALLOW_THREADS
    result = scan_pages(a->pages, low, high);
    Py_END_ALLOW_THREADS
    return result;
}

static int ends_differ(const Account *a)
{
    const size_t head = a->start - a->low, tail = a->high - a->stop;
    return memcmp(a->ends, (const char *)a->low, head) != 0
        || memcmp(a->ends + head, (const char *)a->stop, tail) != 0;
}

static void read_ends(Account *a)
{
    const size_t head = a->start - a->low, tail = a->high - a->stop;
    memcpy(a->ends, (const char *)a->low, head);
    memcpy(a->ends + head, (const char *)a->stop, tail);
}

static int has_changed(Account *a)
{
    if (a->written) return 1;
    if (!a->shares_pages) {
        if (!any_written(a, a->first, a->last)) return 0;
        a->shares_pages = 1;
    }
    if (any_written(a, a->start, a->stop) || ends_differ(a)) a->written = 1;
    return a->written;
}

static int resumes(Account *a)
{
    if (!a->shares_pages) {
        if (!any_written(a, a->first, a->last)) return 1;
        a->shares_pages = 1;
    }
    if (any_written(a, a->start, a->stop)) return 0;
    read_ends(a);
    return 1;
}

static PyObject *begin(PyObject *self, PyObject *unused)
{
    (void)unused;
    read_ends((Account *)self);
    Py_RETURN_NONE;
}

static PyObject *changed(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(has_changed((Account *)self));
}

static PyObject *resume(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(resumes((Account *)self));
}

static PyObject *sample(PyObject *self, PyObject *unused)
{
    const Account *a = (const Account *)self;
    const uintptr_t step = (a->high - a->low - SAMPLE) / (SAMPLES - 1);
    char bytes[SAMPLES * SAMPLE];
    (void)unused;
    for (uintptr_t i = 0; i < SAMPLES; i++)
        memcpy(bytes + i * SAMPLE, (const char *)(a->low + i * step), SAMPLE);
    return PyBytes_FromStringAndSize(bytes, sizeof bytes);
}

static PyObject *new_account(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int pages;
    unsigned long long low, high, page;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iKKK", &pages, &low, &high, &page)) return NULL;
    if (page == 0 || low > high || high - low < 3 * page) {
        PyErr_SetString(PyExc_ValueError, "Account: the bytes fill no three pages");
        return NULL;
    }
    Account *a = (Account *)PyType_GenericAlloc(type, 0);
    if (a == NULL) return NULL;
    a->pages = pages;
    a->low = (uintptr_t)low, a->high = (uintptr_t)high;
    a->first = (uintptr_t)(low / page * page), a->stop = (uintptr_t)(high / page * page);
    a->start = (uintptr_t)((low + page - 1) / page * page);
    a->last = (uintptr_t)((high + page - 1) / page * page);
    a->ends = malloc(a->start - a->low + (a->high - a->stop) + 1);
    if (a->ends == NULL) {
        Py_DECREF((PyObject *)a);
        return PyErr_NoMemory();
    }
    return (PyObject *)a;
}

static void free_account(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((Account *)self)->ends);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyMemberDef members[] = {
    {"written", T_BOOL, offsetof(Account, written), 0, NULL},
    {"shares_pages", T_BOOL, offsetof(Account, shares_pages), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"begin", begin, METH_NOARGS, NULL},
    {"changed", changed, METH_NOARGS, NULL},
    {"resume", resume, METH_NOARGS, NULL},
    {"sample", sample, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_account},
    {Py_tp_dealloc, free_account},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "adarray_native._seals.Account", sizeof(Account), 0, Py_TPFLAGS_DEFAULT, slots,
};

static PyObject *account_type; /* once it is installed */

/* What `self` of a finder is: (resting, ndarray, "account"). */
enum { SELF_RESTING, SELF_CLASS, SELF_NAME };

/* Return the bytes of an array without gaps as (low, high); NULL, perhaps with an exception. */
static PyObject *bounds(PyArrayObject *x)
{
    const PyArray_Descr *d = PyArray_DESCR(x);
    npy_intp bytes = d->elsize;
    if (d->type_num > NPY_CLONGDOUBLE && d->type_num != NPY_HALF) return NULL;
    if (!(PyArray_FLAGS(x) & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS))) return NULL;
    for (int i = 0; i < PyArray_NDIM(x); i++) bytes *= PyArray_DIM(x, i);
    const uintptr_t low = (uintptr_t)PyArray_DATA(x);
    PyObject *first = PyLong_FromSize_t(low);
    PyObject *last = first ? PyLong_FromSize_t(low + (uintptr_t)bytes) : NULL;
    PyObject *key = last ? PyTuple_Pack(2, first, last) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(last);
    return key;
}

static PyObject *find(PyObject *self, PyObject *array)
{
    PyObject *resting = PyTuple_GetItem(self, SELF_RESTING), *seal = NULL;
    if ((PyObject *)Py_TYPE(array) != PyTuple_GetItem(self, SELF_CLASS) || !PyDict_Size(resting))
        Py_RETURN_NONE;
    PyObject *key = bounds((PyArrayObject *)array);
    if (key) seal = PyDict_GetItemWithError(resting, key);
    if (seal) {
        Py_INCREF(seal);
        PyObject *account = PyObject_GetAttr(seal, PyTuple_GetItem(self, SELF_NAME));
        if (account == NULL || (PyObject *)Py_TYPE(account) != account_type
            || !resumes((Account *)account) || PyDict_DelItem(resting, key) < 0)
            Py_CLEAR(seal);
        Py_XDECREF(account);
    }
    Py_XDECREF(key);
    if (PyErr_Occurred()) {
        Py_XDECREF(seal);
        return NULL;
    }
    if (seal) return seal;
    Py_RETURN_NONE;
}

static PyMethodDef find_method = {"find", find, METH_O, NULL};

/* finder(resting, ndarray) -> find */
static PyObject *finder(PyObject *module, PyObject *args)
{
    PyObject *resting, *class;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &resting, &class)) return NULL;
    PyObject *self = Py_BuildValue("(OOs)", resting, class, "account");
    PyObject *function = self ? PyCFunction_NewEx(&find_method, self, NULL) : NULL;
    Py_XDECREF(self);
    return function;
}

static PyMethodDef finder_method = {"finder", finder, METH_VARARGS, NULL};

/* -- arrays that are read-only meanwhile ---------------------------------------------------- */

/* What `self` of these functions is: (protected, the function in Python). */
enum { SELF_PROTECTED, SELF_FUNCTION };

static PyObject *in_python(PyObject *self, PyObject *argument)
{
    return PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, SELF_FUNCTION), argument, NULL);
}

/* Whether no other array decides on whether this one may be writeable. */
static int is_owner(PyArrayObject *x)
{
    return PyArray_BASE(x) == NULL && (PyArray_FLAGS(x) & NPY_ARRAY_OWNDATA) != 0;
}

/* Return ([1], [array, array]), or without the second one, as it is not made read-only. */
static PyObject *new_entry(PyObject *array, int writeable)
{
    PyObject *count = PyList_New(1), *arrays = PyList_New(1 + writeable), *one = PyLong_FromLong(1);
    PyObject *entry = count && arrays && one ? PyTuple_Pack(2, count, arrays) : NULL;
    if (entry) {
        PyList_SetItem(count, 0, one);
        for (int i = 0; i <= writeable; i++) {
            Py_INCREF(array);
            PyList_SetItem(arrays, i, array);
        }
        one = NULL;
    }
    Py_XDECREF(one);
    Py_XDECREF(count);
    Py_XDECREF(arrays);
    return entry;
}

static PyObject *protect(PyObject *self, PyObject *array)
{
    PyObject *protected = PyTuple_GetItem(self, SELF_PROTECTED), *entry;
    PyArrayObject *x = (PyArrayObject *)array;
    if (!is_owner(x)) return in_python(self, array);
    PyObject *key = PyLong_FromVoidPtr(array);
    if (key == NULL) return NULL;
    if (PyDict_GetItemWithError(protected, key)) {
        Py_DECREF(key);
        return in_python(self, array);
    }
    entry = PyErr_Occurred() ? NULL : new_entry(array, PyArray_ISWRITEABLE(x) != 0);
    if (entry == NULL || PyDict_SetItem(protected, key, entry) < 0)
        Py_CLEAR(key);
    else
        PyArray_CLEARFLAGS(x, NPY_ARRAY_WRITEABLE);
    Py_XDECREF(entry);
    return key;
}

static PyObject *unprotect(PyObject *self, PyObject *key)
{
    PyObject *protected = PyTuple_GetItem(self, SELF_PROTECTED), *array;
    PyObject *entry = PyDict_GetItemWithError(protected, key);
    if (entry == NULL) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *count = PyList_GetItem(PyTuple_GetItem(entry, 0), 0);
    PyObject *arrays = PyTuple_GetItem(entry, 1);
    if (PyLong_AsLong(count) != 1 || PyList_Size(arrays) != 2
        || (array = PyList_GetItem(arrays, 0)) != PyList_GetItem(arrays, 1)
        || !is_owner((PyArrayObject *)array))
        return in_python(self, key);
    PyArray_ENABLEFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
    if (PyDict_DelItem(protected, key) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef protect_method = {"protect", protect, METH_O, NULL};
static PyMethodDef unprotect_method = {"unprotect", unprotect, METH_O, NULL};

static PyObject *bound(PyMethodDef *method, PyObject *protected, PyObject *function)
{
    PyObject *self = PyTuple_Pack(2, protected, function);
    PyObject *result = self ? PyCFunction_NewEx(method, self, NULL) : NULL;
    Py_XDECREF(self);
    return result;
}

/* protection(protected, protect, unprotect) -> (protect, unprotect) */
static PyObject *protection(PyObject *module, PyObject *args)
{
    PyObject *protected, *first, *second;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &protected, &first, &second)) return NULL;
    first = bound(&protect_method, protected, first);
    second = bound(&unprotect_method, protected, second);
    PyObject *functions = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return functions;
}

static PyMethodDef protection_method = {"protection", protection, METH_VARARGS, NULL};

static int put(PyObject *dict, PyMethodDef *method)
{
    PyObject *function = PyCFunction_NewEx(method, NULL, NULL);
    const int result = function ? PyDict_SetItemString(dict, method->ml_name, function) : -1;
    Py_XDECREF(function);
    return result;
}

int adarray_seals_install(uintptr_t dict)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *contents = (PyObject *)dict;
    if (account_type == NULL) account_type = PyType_FromSpec(&spec);
    int result = account_type ? PyDict_SetItemString(contents, "Account", account_type) : -1;
    if (result == 0) result = put(contents, &finder_method);
    if (result == 0) result = put(contents, &protection_method);
    if (result < 0) PyErr_Clear();
    PyGILState_Release(state);
    return result;
}

#else

int adarray_seals_install(uintptr_t dict)
{
    (void)dict;
    return -1;
}

#endif
