/* Selectors: what selectors.py does. */

static PyObject *read_name(PyObject *value, PyObject *name) {
    if (!PyType_Check(value)) {
        PyObject *fields = PyObject_GenericGetDict(value, NULL);
        if (fields != NULL) {
            PyObject *found = PyDict_GetItemWithError(fields, name);
            Py_XINCREF(found);
            Py_DECREF(fields);
            if (found != NULL || PyErr_Occurred()) return found;
        } else {
            PyErr_Clear();
        }
    }
    return PyObject_CallFunctionObjArgs(on_read, value, name, NULL);
}

static PyObject *walk(PyObject *value, PyObject *parts, Py_ssize_t at);

/* The rest of the way for every element of a list or tuple. */
static PyObject *walk_every(PyObject *value, PyObject *parts, Py_ssize_t at) {
    int is_list = Py_TYPE(value) == &PyList_Type, is_tuple = Py_TYPE(value) == &PyTuple_Type;
    Py_ssize_t size = is_list ? PyList_Size(value) : is_tuple ? PyTuple_Size(value) : -1;
    PyObject *found = NULL;
    if (size < 0 || size > MAX_MAPPED) {
        Py_DECREF(value);
        Py_INCREF(unread);
        return unread;
    }
    found = PyList_New(size);
    for (Py_ssize_t i = 0; found != NULL && i < size; i++) {
        PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        Py_XINCREF(item); /* NULL if the list has shrunk in between */
        item = item == NULL ? NULL : walk(item, parts, at);
        if (item == NULL) { Py_DECREF(found); found = NULL; break; }
        PyList_SetItem(found, i, item);
    }
    Py_DECREF(value);
    return found;
}

/* Follows `parts` from `at` on; takes `value` over and returns a new reference. */
static PyObject *walk(PyObject *value, PyObject *parts, Py_ssize_t at) {
    Py_ssize_t count = PyTuple_Size(parts);
    for (; value != NULL && at < count; at++) {
        PyObject *part = PyTuple_GetItem(parts, at), *next = NULL;
        if (value == Py_None || value == unread) return value;
        if (part == every_part) return walk_every(value, parts, at + 1);
        if (PyLong_Check(part)) {
            Py_ssize_t index = PyLong_AsSsize_t(part);
            if (Py_TYPE(value) == &PyList_Type && index < PyList_Size(value)) next = PyList_GetItem(value, index);
            else if (Py_TYPE(value) == &PyTuple_Type && index < PyTuple_Size(value)) next = PyTuple_GetItem(value, index);
            else next = unread;
            Py_XINCREF(next);
        } else {
            next = read_name(value, part);
        }
        Py_DECREF(value);
        value = next;
    }
    return value;
}

static uint32_t step_of(const void *result) {
    for (int i = 0; i < LINKS; i++)
        if (links[i].result == result && result != NULL) return links[i].step;
    return 0;
}

static PyObject *select_value(const Selector *selector, PyObject *args, PyObject *kwargs, PyObject *result) {
    PyObject *value = unread;
    if (selector->root == RETURN) {
        value = result;
    } else if (selector->position < PyTuple_Size(args)) {
        value = PyTuple_GetItem(args, selector->position);
    } else if (selector->name != Py_None) {
        PyObject *found = PyDict_GetItemWithError(kwargs, selector->name);
        if (found == NULL && PyErr_Occurred()) return NULL;
        if (found != NULL) value = found;
    }
    Py_INCREF(value);
    value = walk(value, selector->parts, 0);
    if (value != NULL && selector->is_step) {
        uint32_t step = step_of(value);
        Py_DECREF(value);
        value = PyLong_FromUnsignedLong(step);
    }
    return value;
}
