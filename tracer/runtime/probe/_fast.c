/* The recorder's hot path in C: the same records as probe.py, describe.py and recorder.py write, for less.
 *
 * What is met for the first time (a layout, a text), a full segment, and new kinds of steps are left to Python; what
 * was met before, and what differs from that in sizes only, is dealt with here.
 */
#include "_fast_state.c"
#include "_fast_write.c"
#include "_fast_describe.c"
#include "_fast_select.c"

/* --- Records ------------------------------------------------------------------------------------------------------ */

static Selector the_result = {RETURN, 0, 0, NULL, NULL};
static Side raised_side = {1, &the_result, NULL, NULL, NULL};

static int describe_and_write(int kind, const Site *site, Side *side, int thread, PyObject *args, PyObject *kwargs,
                              PyObject *result, uint64_t time) {
    const Thread *state = &threads[thread];
    PyObject *values[MAX_VALUES];
    Ints ints;
    int count = 0, failed = 0;
    int64_t number = 0;
    ints.count = 0;
    for (; count < side->count && !failed; count += !failed) {
        values[count] = select_value(&side->selectors[count], args, kwargs, result);
        failed = values[count] == NULL;
    }
    if (!failed && count > 0) {
        number = describe(&side->layouts, NULL, side->owner, NULL, side->names, values, count, &ints, 0);
        failed = number < 0;
    }
    if (!failed) {
        int phase = state->captures || state->graphs ? CAPTURE : state->replays ? REPLAY : last_step ? EAGER : WARM_UP;
        failed = write_record(kind, site->number, (uint32_t)number, &ints, phase, thread, time) < 0;
    }
    for (int i = 0; i < count; i++) Py_DECREF(values[i]);
    return failed ? -1 : 0;
}

static int record(int kind, const Site *site, Side *side, int thread, PyObject *args, PyObject *kwargs, PyObject *result) {
    uint64_t time = now_ns(), new_before = new_things;
    if (threads[thread].busy) { put(head_at.not_taken, ++not_taken); return 0; } /* a signal handler inside a record */
    if (forget_soon && inside == 0) {
        free_chain(&raised_side.layouts);
        if (forget() < 0) return -1;
    }
    threads[thread].busy = 1;
    inside++;
    int failed = describe_and_write(kind, site, side, thread, args, kwargs, result, time);
    threads[thread].busy = 0;
    inside--;
    uint64_t cost = now_ns() - time;
    if (level == FULL) full_ns += cost;
    else light_ns += cost;
    if (new_things != new_before) {
        put(head_at.cold_ns, cold_ns += cost);
        put(head_at.cold, ++cold);
    } else {
        put(head_at.warm_ns, warm_ns += cost);
        put(head_at.warm, ++warm);
    }
    return failed;
}

/* --- Steps -------------------------------------------------------------------------------------------------------- */

static void set_level(int to) {
    if (level == to) return;
    level = to;
    PyObject *open = to == FULL ? Py_True : Py_False;
    Py_INCREF(open);
    PyList_SetItem(gate, 0, open);
}

static int level_of(uint32_t step) {
    if ((int64_t)step < first_step || (int64_t)step >= past_step) return OFF;
    if (step < full_until) return FULL;
    return ((int64_t)step - first_step) % every == 0 ? FULL : LIGHT;
}

/* A batch is about to run. Python is asked when it is of another kind than the last one, and now and then. */
static int begin_step(const Site *site, PyObject *args) {
    PyObject *batch = PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : Py_None;
    PyObject *mode = read_name(batch, s_forward_mode), *requests = mode == NULL ? NULL : read_name(batch, s_reqs);
    if (requests == NULL) { Py_XDECREF(mode); return -1; }
    Py_ssize_t size = Py_TYPE(requests) == &PyList_Type ? PyList_Size(requests) : -1;
    uint64_t now = now_ns(), gap = now - step_ns;
    if (step_ns && gap < PAUSE_NS) { busy_ns += gap; busy_steps++; }
    step_ns = now;
    step_now = ++last_step;
    put(head_at.step, last_step);
    int failed = 0;
    if (mode != steady_mode || size != steady_size || last_step < full_until || last_step >= check_at) {
        steady_mode = mode;
        steady_size = size;
        check_at = last_step + CHECK_EVERY;
        PyObject *number = PyLong_FromUnsignedLong(last_step), *length = PyLong_FromSsize_t(size), *done = NULL;
        if (number != NULL && length != NULL)
            done = PyObject_CallFunctionObjArgs(on_step, site->site, number, mode, length, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
        Py_XDECREF(number);
        Py_XDECREF(length);
    }
    set_level(level_of(last_step));
    if (level == FULL) full_steps++;
    else light_steps++;
    Py_DECREF(mode);
    Py_DECREF(requests);
    return failed ? -1 : 0;
}

/* --- Called by the wrappers --------------------------------------------------------------------------------------- */

static int this_thread(void) {
    unsigned long ident = PyThread_get_thread_ident();
    for (int i = 0; i < thread_count; i++)
        if (threads[i].ident == ident) return i;
    if (thread_count == MAX_THREADS) return MAX_THREADS - 1; /* shares a number with others */
    threads[thread_count].ident = ident;
    return thread_count++;
}

static int wanted(const Site *site, const Thread *thread) {
    if (thread->graphs || (level != FULL && (level == OFF || !(site->flags & F_LIGHT)))) return 0;
    return !thread->captures || site->flags & F_CAPTURE;
}

static Side *side_of(Site *site, int after) { return &site->side[after + (level == FULL ? 0 : 2)]; }

static void leave(const Site *site, Thread *thread, int raised) {
    if (site->flags & F_CAPTURE) thread->captures--;
    if (site->flags & F_REPLAY) thread->replays--;
    if (site->flags & F_GRAPH_END || (raised && site->flags & F_GRAPH_BEGIN)) thread->graphs--;
}

/* Tells Python of a failure. What is no Exception (an interrupt) goes on as it would without the probe. */
static PyObject *fail(const Site *site) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *done = PyObject_CallFunctionObjArgs(on_failed, site->site, value == NULL ? Py_None : value, NULL);
    if (done == NULL) PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_RETURN_NONE;
}

static Site *site_of(PyObject *number) {
    long at = PyLong_AsLong(number);
    if (at < 0 || at >= site_count) { PyErr_SetString(PyExc_IndexError, "no such site"); return NULL; }
    return sites[at];
}

static PyObject *fast_before(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Site *site = count == 3 ? site_of(given[0]) : NULL;
    if (site == NULL) { PyErr_SetString(PyExc_TypeError, "before(site, args, kwargs)"); return NULL; }
    if (!site->on) Py_RETURN_NONE;
    int number = this_thread();
    Thread *thread = &threads[number];
    if (site->flags & F_OPEN) {
        step_now = last_step + 1;
        set_level(level_of(step_now));
    } else if (site->flags & F_STEP && begin_step(site, given[1]) < 0) {
        return fail(site);
    }
    if (site->flags & F_CAPTURE) thread->captures++;
    if (site->flags & F_REPLAY) thread->replays++;
    if (site->flags & F_GRAPH_BEGIN) thread->graphs++;
    if (!wanted(site, thread)) {
        if (!(site->flags & F_AFTER)) Py_RETURN_NONE; /* nothing is left to do when it returns */
    } else if (!(site->flags & F_QUIET) && record(ENTER, site, side_of(site, 0), number, given[1], given[2], Py_None) < 0) {
        leave(site, thread, 0);
        return fail(site);
    }
    return PyLong_FromLong(number);
}

static PyObject *fast_after(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Site *site = count == 5 ? site_of(given[0]) : NULL;
    long number = site == NULL ? -1 : PyLong_AsLong(given[1]);
    if (number < 0 || number >= MAX_THREADS) {
        PyErr_SetString(PyExc_TypeError, "after(site, thread, args, kwargs, result)");
        return NULL;
    }
    Thread *thread = &threads[number];
    int failed = 0;
    if (wanted(site, thread) && !(site->flags & F_QUIET && given[4] == Py_None))
        failed = record(EXIT, site, side_of(site, 1), (int)number, given[2], given[3], given[4]) < 0;
    leave(site, thread, 0);
    if (failed) return fail(site);
    if (site->flags & F_STEP && given[4] != Py_None) {
        for (int i = 0; i < LINKS; i++) /* an older result may have lain there */
            if (links[i].result == given[4]) links[i].result = NULL;
        links[link_at].result = given[4]; /* compared, never used */
        links[link_at].step = last_step;
        link_at = (link_at + 1) % LINKS;
    }
    if (site->flags & F_PROCESS) {
        PyObject *done = PyObject_CallFunctionObjArgs(on_process, given[2], NULL);
        if (done == NULL) return fail(site);
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

static PyObject *fast_raised(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Site *site = count == 3 ? site_of(given[0]) : NULL;
    long number = site == NULL ? -1 : PyLong_AsLong(given[1]);
    if (number < 0 || number >= MAX_THREADS) {
        PyErr_SetString(PyExc_TypeError, "raised(site, thread, error)");
        return NULL;
    }
    int failed = 0;
    if (wanted(site, &threads[number])) {
        PyObject *none = PyTuple_New(0);
        failed = none == NULL || record(RAISE, site, &raised_side, (int)number, none, Py_None, given[2]) < 0;
        Py_XDECREF(none);
    }
    leave(site, &threads[number], 1);
    if (failed) return fail(site);
    Py_RETURN_NONE;
}

/* --- Called by fast.py -------------------------------------------------------------------------------------------- */

enum { HELD = 15 };
static PyObject **held[HELD] = {&on_layout, &on_text, &on_object, &on_list, &on_ensure, &on_rotate, &on_step, &on_process,
                                &on_failed, &on_read, &on_forget, &gate, &unread, &ordinals, &every_part};

static PyObject *fast_setup(PyObject *self, PyObject *args) {
    PyObject *given, *capsule, *torch, *names;
    if (!PyArg_ParseTuple(args, "O!OOpO!(iiiiiiii)", &PyTuple_Type, &given, &capsule, &torch, &pointers, &PyTuple_Type, &names,
                          &head_at.records, &head_at.definitions, &head_at.step, &head_at.not_taken, &head_at.warm_ns,
                          &head_at.warm, &head_at.cold_ns, &head_at.cold))
        return NULL;
    if (PyTuple_Size(given) != HELD) { PyErr_SetString(PyExc_TypeError, "another number of functions"); return NULL; }
    exchange = NULL;
    if (capsule != Py_None) {
        DLExchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (found == NULL) return NULL;
        if (found->version.major == 1 && found->tensor_from_object != NULL) exchange = found;
    }
    for (int i = 0; i < HELD; i++) {
        Py_XDECREF(*held[i]);
        *held[i] = PyTuple_GetItem(given, i);
        Py_INCREF(*held[i]);
    }
    torch_c = torch == Py_None ? NULL : torch;
    Py_XINCREF(torch_c);
    if (devices == NULL) devices = PyDict_New();
    if (the_result.parts == NULL) the_result.parts = PyTuple_New(0);
    if (raised_side.owner == NULL) raised_side.owner = PyUnicode_FromString("raised");
    the_result.name = Py_None;
    Py_INCREF(names);
    raised_side.names = names;
    if (devices == NULL || the_result.parts == NULL || raised_side.owner == NULL) return NULL;
    return PyBool_FromLong(exchange != NULL);
}

static int fill_side(Side *side, PyObject *given) {
    PyObject *owner, *names, *selectors;
    if (!PyArg_ParseTuple(given, "OO!O!", &owner, &PyTuple_Type, &names, &PyTuple_Type, &selectors)) return -1;
    Py_ssize_t count = PyTuple_Size(selectors);
    if (count > MAX_VALUES || PyTuple_Size(names) != count) { PyErr_SetString(PyExc_ValueError, "too many fields"); return -1; }
    side->selectors = PyMem_Calloc((size_t)count + 1, sizeof(Selector));
    if (side->selectors == NULL) { PyErr_NoMemory(); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        Selector *s = &side->selectors[i];
        if (!PyArg_ParseTuple(PyTuple_GetItem(selectors, i), "inOO!p", &s->root, &s->position, &s->name, &PyTuple_Type,
                              &s->parts, &s->is_step))
            return -1;
        Py_INCREF(s->name);
        Py_INCREF(s->parts);
    }
    Py_INCREF(owner);
    Py_INCREF(names);
    side->owner = owner;
    side->names = names;
    side->count = (int)count;
    return 0;
}

static PyObject *fast_site(PyObject *self, PyObject *args) {
    PyObject *site, *sides;
    int number, flags;
    if (!PyArg_ParseTuple(args, "OiiO!", &site, &number, &flags, &PyTuple_Type, &sides)) return NULL;
    Site **grown = PyMem_Realloc(sites, sizeof(Site *) * (size_t)(site_count + 1));
    Site *added = PyMem_Calloc(1, sizeof(Site)); /* stays where it is: calls hold on to it */
    if (grown == NULL || added == NULL) return PyErr_NoMemory();
    sites = grown;
    sites[site_count] = added;
    added->number = number;
    added->flags = flags;
    added->on = 1;
    Py_INCREF(site);
    added->site = site;
    for (int i = 0; i < 4; i++)
        if (i >= PyTuple_Size(sides) || fill_side(&added->side[i], PyTuple_GetItem(sides, i)) < 0) return NULL;
    return PyLong_FromLong(site_count++);
}

static PyObject *fast_switch_off(PyObject *self, PyObject *number) {
    Site *site = site_of(number);
    if (site == NULL) return NULL;
    site->on = 0;
    Py_RETURN_NONE;
}

static PyObject *fast_stream(PyObject *self, PyObject *args) {
    unsigned long long address, at, end, head_address;
    if (!PyArg_ParseTuple(args, "KKKK", &address, &at, &end, &head_address)) return NULL;
    stream = (uint8_t *)(uintptr_t)address;
    stream_at = at;
    stream_end = end;
    head = (uint8_t *)(uintptr_t)head_address;
    generation++;
    Py_RETURN_NONE;
}

/* Writes what Python packed, all but its first word, and completes it. False if there is no room. */
static PyObject *fast_append(PyObject *self, PyObject *body) {
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(body, &data, &length) < 0) return NULL;
    if (stream_at + (uint64_t)length + 4 > stream_end) Py_RETURN_FALSE;
    memcpy(stream + stream_at + 4, data, (size_t)length);
    complete((uint32_t)length + 4);
    put(head_at.definitions, ++definitions);
    Py_RETURN_TRUE;
}

/* How much of the steps to come is recorded: all of them in full until `full_until`, then every so many. */
static PyObject *fast_pace(PyObject *self, PyObject *args) {
    long long first, past;
    unsigned int every_given, until, check;
    if (!PyArg_ParseTuple(args, "LLIII", &first, &past, &every_given, &until, &check)) return NULL;
    first_step = first;
    past_step = past;
    every = every_given ? every_given : 1;
    full_until = until;
    check_at = check;
    if (past_step <= 0) set_level(OFF);
    Py_RETURN_NONE;
}

static PyObject *fast_counters(PyObject *self, PyObject *unused) {
    return Py_BuildValue("KKKKKKKI", (unsigned long long)records, (unsigned long long)definitions,
                         (unsigned long long)not_taken, (unsigned long long)warm_ns, (unsigned long long)warm,
                         (unsigned long long)cold_ns, (unsigned long long)cold, (unsigned int)last_step);
}

static PyObject *fast_spent(PyObject *self, PyObject *unused) {
    return Py_BuildValue("KKKKKK", (unsigned long long)full_ns, (unsigned long long)full_steps, (unsigned long long)light_ns,
                         (unsigned long long)light_steps, (unsigned long long)busy_ns, (unsigned long long)busy_steps);
}

static PyObject *fast_forget(PyObject *self, PyObject *unused) {
    forget_soon = forget_all = 1; /* when nothing is being described */
    Py_RETURN_NONE;
}

/* The child of a fork: nothing is mapped yet, and nothing was recorded. */
static PyObject *fast_abandon(PyObject *self, PyObject *unused) {
    stream = head = NULL;
    stream_at = stream_end = records = definitions = not_taken = warm_ns = warm = cold_ns = cold = 0;
    generation++;
    for (int i = 0; i < thread_count; i++) threads[i].busy = 0;
    inside = 0;
    Py_RETURN_NONE;
}

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL
static PyMethodDef methods[] = {
    {"before", FAST(fast_before), "A wrapped function is about to be called."},
    {"after", FAST(fast_after), "It returned."},
    {"raised", FAST(fast_raised), "It raised."},
    {"setup", fast_setup, METH_VARARGS, "What is left to Python. Returns whether tensors are read through DLPack."},
    {"site", fast_site, METH_VARARGS, "Add a site; returns what the others call it."},
    {"switch_off", fast_switch_off, METH_O, "Record a site no more."},
    {"stream", fast_stream, METH_VARARGS, "Write into other memory."},
    {"append", fast_append, METH_O, "Write a packed definition."},
    {"pace", fast_pace, METH_VARARGS, "How much of the steps to come is recorded."},
    {"counters", fast_counters, METH_NOARGS, "What was recorded, at what cost, and the last step."},
    {"spent", fast_spent, METH_NOARGS, "Time and number of steps recorded in full, lightly, and of those that followed closely."},
    {"forget", fast_forget, METH_NOARGS, "Start anew with definitions, soon."},
    {"abandon", fast_abandon, METH_NOARGS, "Let go of the memory after a fork."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fast", "The recorder's hot path.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) {
    crc_prepare();
    s_shape = PyUnicode_InternFromString("shape");
    s_stride = PyUnicode_InternFromString("stride");
    s_dtype = PyUnicode_InternFromString("dtype");
    s_device = PyUnicode_InternFromString("device");
    s_data_address = PyUnicode_InternFromString("_data_address");
    s_forward_mode = PyUnicode_InternFromString("forward_mode");
    s_reqs = PyUnicode_InternFromString("reqs");
    return PyModule_Create(&module);
}
