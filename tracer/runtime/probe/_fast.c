/* The recorder's hot path in C: the same records as probe.py, describe.py and recorder.py write, for less.
 *
 * What is met for the first time (a layout, a text), a full segment, and new kinds of steps are left to Python; what
 * was met before, and what differs from that in sizes only, is dealt with here.
 */
#include "_fast_state.c"
#include "_fast_write.c"
#include "_fast_describe.c"
#include "_fast_select.c"
#include "_fast_steps.c"

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
        failed = write_record(kind, site->number, step_now, (uint32_t)number, ints.values, ints.count, phase, thread, time) < 0;
    }
    for (int i = 0; i < count; i++) Py_DECREF(values[i]);
    return failed ? -1 : 0;
}

static int record(int kind, const Site *site, Side *side, int thread, PyObject *args, PyObject *kwargs, PyObject *result,
                  uint64_t time) {
    uint64_t new_before = new_things;
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
    if (!measuring && new_things == new_before) return failed;
    uint64_t cost = now_ns() - time;
    if (new_things != new_before) {
        put(head_at.cold_ns, cold_ns += cost);
        put(head_at.cold, ++cold);
    } else {
        put(head_at.warm_ns, warm_ns += cost);
        put(head_at.warm, ++warm);
    }
    return failed;
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
    if (thread->graphs || level != FULL || site->flags & F_SILENT) return 0;
    return !thread->captures || site->flags & F_CAPTURE;
}

/* What is met for the first time costs more, once: it is in `cold_ns`, and no measure of the steps to come. Nor is a call
 * during which the system gave the processor to somebody else. */
static void account(uint64_t began, uint64_t new_before) {
    if (!measuring) return; /* reading the clock may be what costs most */
    uint64_t cost = now_ns() - began;
    if (new_things != new_before || cost > PREEMPTED_NS) return;
    spent_ns[level] += cost;
    level_calls[level]++;
}

/* In a window of --gpu-time: work for the device is queued in between. Of functions inside one another the outermost is
 * the step's. */
static int device(const Site *site, int number, PyObject *args, int begins) {
    Thread *thread = &threads[number];
    if (number != step_thread || thread->captures || thread->graphs) return 0;
    int64_t padded = -1;
    int failed = 0;
    if (site->flags & F_GRAPH) {
        if (!begins && PyTuple_Size(args) > 0) padded = int_attribute(PyTuple_GetItem(args, 0), s_bs, &failed);
        if (failed) return -1;
    } else {
        thread->devices += begins ? 1 : -1;
        if (thread->devices != (begins ? 1 : 0)) return 0;
    }
    PyObject *done = PyObject_CallFunction(on_device, "iOL", site->number, begins ? Py_True : Py_False, (long long)padded);
    if (done == NULL) return -1;
    Py_DECREF(done);
    return 0;
}

static int leave(const Site *site, int number, PyObject *args, PyObject *kwargs, PyObject *result, uint64_t now, int raised) {
    Thread *thread = &threads[number];
    if (site->flags & F_CAPTURE) thread->captures--;
    if (site->flags & F_REPLAY) thread->replays--;
    if (site->flags & F_GRAPH_END || (raised && site->flags & F_GRAPH_BEGIN)) thread->graphs--;
    if (site->flags & F_GRAPH) replayed(args, number);
    if (site->flags & F_WAIT && number == step_thread) wait_ns += now - thread->wait_ns;
    if (site->flags & F_OPEN && result == Py_None && !raised) {
        step_now = last_step; /* what comes now processes what ran before */
        idle = 1;
    }
    if (site->flags & F_STEP) {
        int failed = level != OFF && inside_step && end_step(site, number, result, now, raised) < 0;
        inside_step = 0;
        put(head_at.inside, 0);
        if (failed) return -1;
    }
    if (site->flags & F_RESULT && level != OFF && !raised && take_result(site, number, args, kwargs, now) < 0) return -1;
    return 0;
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
    uint64_t new_before = new_things;
    Site *site = count == 3 ? site_of(given[0]) : NULL;
    if (site == NULL) { PyErr_SetString(PyExc_TypeError, "before(site, args, kwargs)"); return NULL; }
    if (!site->on) Py_RETURN_NONE;
    uint64_t now = measuring || level == FULL || site->flags & (F_OPEN | F_STEP) ? now_ns() : 0;
    int number = this_thread();
    Thread *thread = &threads[number];
    if (site->flags & F_OPEN) {
        step_now = last_step + 1;
        set_level(level_of(step_now));
        turn_ns = now;
    } else if (site->flags & F_STEP && begin_step(site, number, given[1], now) < 0) {
        return fail(site);
    }
    if (site->flags & F_COMPILE) compiled_now++;
    if (site->flags & F_CAPTURE) thread->captures++;
    if (site->flags & F_REPLAY) thread->replays++;
    if (site->flags & F_GRAPH_BEGIN) thread->graphs++;
    int failed = 0;
    if (!wanted(site, thread)) {
        if (!(site->flags & F_AFTER)) { account(now, new_before); Py_RETURN_NONE; } /* nothing is left to do when it returns */
    } else if (!(site->flags & F_QUIET)) {
        failed = record(ENTER, site, &site->side[0], number, given[1], given[2], Py_None, now) < 0;
    }
    if (!failed && site->flags & F_DEVICE && on_device != Py_None) failed = device(site, number, given[1], 1) < 0;
    if (failed) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (site->flags & F_CAPTURE) thread->captures--;
        if (site->flags & F_REPLAY) thread->replays--;
        if (site->flags & F_GRAPH_BEGIN) thread->graphs--;
        PyErr_Restore(type, value, traceback);
        return fail(site);
    }
    account(now, new_before);
    if (site->flags & F_WAIT) thread->wait_ns = now_ns();
    return PyLong_FromLong(number);
}

static PyObject *fast_after(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    uint64_t new_before = new_things;
    Site *site = count == 5 ? site_of(given[0]) : NULL;
    int timed = site != NULL && (measuring || level == FULL || site->flags & (F_STEP | F_WAIT | F_RESULT));
    uint64_t now = timed ? now_ns() : 0;
    long number = site == NULL ? -1 : PyLong_AsLong(given[1]);
    if (number < 0 || number >= MAX_THREADS) {
        PyErr_SetString(PyExc_TypeError, "after(site, thread, args, kwargs, result)");
        return NULL;
    }
    int failed = 0;
    if (site->flags & F_DEVICE && on_device != Py_None) failed = device(site, (int)number, given[2], 0) < 0;
    if (!failed && wanted(site, &threads[number]) && !(site->flags & F_QUIET && given[4] == Py_None))
        failed = record(EXIT, site, &site->side[1], (int)number, given[2], given[3], given[4], now) < 0;
    if (failed && fail(site) == NULL) return NULL;
    if (leave(site, (int)number, given[2], given[3], given[4], now, 0) < 0) return fail(site);
    if (site->flags & F_PROCESS) {
        PyObject *done = PyObject_CallFunctionObjArgs(on_process, given[2], NULL);
        if (done == NULL) return fail(site);
        Py_DECREF(done);
    }
    account(now, new_before);
    Py_RETURN_NONE;
}

static PyObject *fast_raised(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    uint64_t now = now_ns(), new_before = new_things;
    Site *site = count == 3 ? site_of(given[0]) : NULL;
    long number = site == NULL ? -1 : PyLong_AsLong(given[1]);
    if (number < 0 || number >= MAX_THREADS) {
        PyErr_SetString(PyExc_TypeError, "raised(site, thread, error)");
        return NULL;
    }
    PyObject *none = PyTuple_New(0);
    if (none == NULL) return fail(site);
    int failed = 0;
    if (wanted(site, &threads[number]))
        failed = record(RAISE, site, &raised_side, (int)number, none, Py_None, given[2], now) < 0;
    if (failed && fail(site) == NULL) { Py_DECREF(none); return NULL; }
    failed = leave(site, (int)number, none, Py_None, Py_None, now, 1) < 0;
    Py_DECREF(none);
    if (failed) return fail(site);
    account(now, new_before);
    Py_RETURN_NONE;
}

/* --- Called by fast.py -------------------------------------------------------------------------------------------- */

enum { HELD = 20 };
static PyObject **held[HELD] = {&on_layout, &on_text,  &on_object, &on_list, &on_ensure, &on_rotate, &on_step,
                                &on_process, &on_failed, &on_read, &on_forget, &on_slot, &gate, &watch,
                                &unread, &ordinals, &every_part, &on_device, &s_width, &s_graph};

static PyObject *fast_setup(PyObject *self, PyObject *args) {
    PyObject *given, *capsule, *torch, *names;
    if (!PyArg_ParseTuple(args, "O!OOpO!(iiiiiiiiiiii)", &PyTuple_Type, &given, &capsule, &torch, &pointers, &PyTuple_Type, &names,
                          &head_at.records, &head_at.definitions, &head_at.step, &head_at.not_taken, &head_at.warm_ns,
                          &head_at.warm, &head_at.cold_ns, &head_at.cold, &head_at.inside, &head_at.began, &head_at.size,
                          &head_at.mode))
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
    for (int i = 0; i < 3; i++)
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
    if (!PyArg_ParseTuple(args, "KKKKi", &address, &at, &end, &head_address, &stream_fd)) return NULL;
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

/* How much of the steps to come is recorded; see Pace. `level` is the forced one, or below 0. */
static PyObject *fast_pace(PyObject *self, PyObject *args) {
    long long first, past;
    unsigned int every_given, light_given, until, check;
    if (!PyArg_ParseTuple(args, "LLIIIIip", &first, &past, &every_given, &light_given, &until, &check, &forced,
                          &attentive))
        return NULL;
    first_step = first;
    past_step = past;
    every = every_given ? every_given : 1;
    light_every = light_given ? light_given : 1;
    full_until = until;
    check_at = check;
    if (past_step <= 0) set_level(OFF);
    Py_RETURN_NONE;
}

/* Windows: the flags of the steps to come, and who is told of work for the device. */
static PyObject *fast_window(PyObject *self, PyObject *args) {
    PyObject *told;
    if (!PyArg_ParseTuple(args, "iO", &window_flags, &told)) return NULL;
    Py_INCREF(told);
    Py_XDECREF(on_device);
    on_device = told;
    Py_RETURN_NONE;
}

/* A record that belongs to no call. */
static PyObject *fast_note(PyObject *self, PyObject *args) {
    int kind, site;
    unsigned int step;
    unsigned long long time;
    PyObject *given;
    int64_t ints[16];
    if (!PyArg_ParseTuple(args, "iiIKO!", &kind, &site, &step, &time, &PyTuple_Type, &given)) return NULL;
    Py_ssize_t count = PyTuple_Size(given);
    if (count > 16) { PyErr_SetString(PyExc_ValueError, "too many integers"); return NULL; }
    for (Py_ssize_t i = 0; i < count; i++) ints[i] = PyLong_AsLongLong(PyTuple_GetItem(given, i));
    if (PyErr_Occurred() || write_record(kind, site, step, 0, ints, (int)count, EAGER, this_thread(), time) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *fast_counters(PyObject *self, PyObject *unused) {
    return Py_BuildValue("KKKKKKKIiKL", (unsigned long long)records, (unsigned long long)definitions,
                         (unsigned long long)not_taken, (unsigned long long)warm_ns, (unsigned long long)warm,
                         (unsigned long long)cold_ns, (unsigned long long)cold, (unsigned int)last_step, inside_step,
                         (unsigned long long)began_ns, (long long)size_now);
}

/* Of each level from COUNT on the time and calls of the steps that were measured, their number and that of all; and the
 * time and number of steps that followed closely. */
static PyObject *fast_spent(PyObject *self, PyObject *unused) {
    PyObject *levels = PyList_New(0);
    for (int i = COUNT; levels != NULL && i < LEVELS; i++) {
        PyObject *row = Py_BuildValue("KKKK", (unsigned long long)spent_ns[i], (unsigned long long)level_calls[i],
                                      (unsigned long long)level_measured[i], (unsigned long long)level_steps[i]);
        if (row == NULL || PyList_Append(levels, row) < 0) { Py_XDECREF(row); Py_DECREF(levels); return NULL; }
        Py_DECREF(row);
    }
    return levels == NULL ? NULL : Py_BuildValue("NKK", levels, (unsigned long long)busy_ns, (unsigned long long)busy_steps);
}

static PyObject *fast_forget(PyObject *self, PyObject *unused) {
    forget_soon = forget_all = 1; /* when nothing is being described */
    Py_RETURN_NONE;
}

/* The child of a fork: nothing is mapped yet, and nothing was recorded. */
static PyObject *fast_abandon(PyObject *self, PyObject *unused) {
    stream = head = slot_now = NULL;
    stream_fd = -1;
    while (slot_count) Py_DECREF(kinds_of_step[--slot_count].mode);
    for (int i = 0; i < LINKS; i++) links[i].result = NULL;
    idle = 1;
    inside_step = 0;
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
    {"window", fast_window, METH_VARARGS, "The flags of the steps to come, and who is told of work for the device."},
    {"note", fast_note, METH_VARARGS, "Write a record that belongs to no call."},
    {"counters", fast_counters, METH_NOARGS, "What was recorded, at what cost, and the last step."},
    {"spent", fast_spent, METH_NOARGS, "What each level took, and the time of steps close together."},
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
    s_bs = PyUnicode_InternFromString("bs");
    return PyModule_Create(&module);
}
