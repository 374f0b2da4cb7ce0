/* Steps: how each is recorded, as Pace decides, and what is counted of it, as tally.py does. */

/* Where in a slot of the histogram each counter lies, and the rest of it; see wire.py and fast.py. */
enum {
    C_STEPS, C_RUN_NS, C_TURNS, C_TURN_NS, C_REPLAYED, C_EAGER, C_PADDED, C_PADDED_STEPS, C_REPLAYS, C_REPLAYS_STEPS,
    C_COMPILED_STEPS, C_WINDOW_STEPS, C_STEADY, C_STEADY_NS, C_WAIT_NS, C_WAIT_STEPS, C_WAIT_PERIOD_NS, C_CHANGED,
    C_CHANGED_NS, C_ODD, C_ODD_NS, C_RESULTS, C_KEPT, C_COUNT,
};
enum { MODE_SIZE = 24, COUNTERS_AT = MODE_SIZE + 16, KEPT = 33, KEPT_AT = COUNTERS_AT + 8 * C_COUNT };
enum { PERIODS_AT = KEPT_AT + 4 * KEPT, FIRST_LOG2 = 14, OCTAVES = 21, PER_OCTAVE = 16 };
enum { FLAG_FULL = 1, FLAG_RAISED = 2, FLAG_NEW = 4, MAX_KINDS = 256 };

typedef struct { PyObject *mode; int64_t size, width; uint8_t *at; } Slot;
static Slot kinds_of_step[MAX_KINDS];
static int slot_count;
static uint8_t *slot_now; /* of the last step that ended */
static PyObject *mode_now; /* a strong reference: it names slots */
static Py_ssize_t size_now;
static uint64_t began_ns, turn_ns, before_ns, before_wait_ns, wait_ns;
static int64_t padded_now, replays_now, compiled_now;
static int idle = 1, watched, changed = 1, window_flags, window_before, step_thread = -1, inside_step;

static void set_level(int to) {
    int watching = to >= LIGHT || (to != OFF && level >= LIGHT);
    if (level != to) {
        PyObject *open = to == FULL ? Py_True : Py_False;
        Py_INCREF(open);
        PyList_SetItem(gate, 0, open);
        level = to;
    }
    PyObject *open = watching ? Py_True : Py_False;
    if (PyList_GetItem(watch, 0) != open) {
        Py_INCREF(open);
        PyList_SetItem(watch, 0, open);
    }
}

static int level_of(uint32_t step) {
    if ((int64_t)step < first_step || (int64_t)step >= past_step) return OFF;
    if (forced >= 0 && (forced != LIGHT || step % light_every == 0)) return forced;
    if (forced < 0 && (step < full_until || ((int64_t)step - first_step) % every == 0)) return FULL;
    return step % light_every == 0 ? LIGHT : COUNT;
}

static void add(uint8_t *slot, int counter, uint64_t value) {
    uint64_t sum;
    memcpy(&sum, slot + COUNTERS_AT + 8 * counter, 8);
    sum += value;
    memcpy(slot + COUNTERS_AT + 8 * counter, &sum, 8);
}

static void count_one(uint8_t *at) {
    uint32_t sum;
    memcpy(&sum, at, 4);
    sum += sum != UINT32_MAX;
    memcpy(at, &sum, 4);
}

static int period_bucket(uint64_t ns) {
    int log = ns ? 63 - __builtin_clzll(ns) : 0;
    if (log < FIRST_LOG2) return 0;
    if (log >= FIRST_LOG2 + OCTAVES) return OCTAVES * PER_OCTAVE + 1;
    return 1 + (log - FIRST_LOG2) * PER_OCTAVE + (int)((ns >> (log - 4)) - PER_OCTAVE);
}

static void count_interval(uint64_t period) {
    if (compiled_now || window_before) {
        add(slot_now, C_ODD, 1);
        add(slot_now, C_ODD_NS, period);
    } else if (changed) {
        add(slot_now, C_CHANGED, 1);
        add(slot_now, C_CHANGED_NS, period);
    } else {
        add(slot_now, C_STEADY, 1);
        add(slot_now, C_STEADY_NS, period);
        count_one(slot_now + PERIODS_AT + 4 * period_bucket(period));
        if (watched) {
            add(slot_now, C_WAIT_NS, wait_ns);
            add(slot_now, C_WAIT_STEPS, 1);
            add(slot_now, C_WAIT_PERIOD_NS, period);
        }
    }
}

/* Kinds of steps of which Python need not be told again when the batch changes to one of them. */
static struct { PyObject *mode; Py_ssize_t size; uint8_t name[16]; } settled[512];

/* With `settle` the kind is one from now on; Python has just left its name in the head. */
static int is_settled(PyObject *mode, Py_ssize_t size, int settle) {
    unsigned at = (unsigned)(((uintptr_t)mode >> 4) * 31 + (uintptr_t)size) % 512;
    if (settle && head != NULL) {
        settled[at].mode = mode; /* compared, never used */
        settled[at].size = size;
        memcpy(settled[at].name, head + head_at.mode, 16);
    }
    int found = settled[at].mode == mode && settled[at].size == size;
    if (found && head != NULL) memcpy(head + head_at.mode, settled[at].name, 16);
    return found;
}

/* A batch is about to run. Python is asked when it is of a new kind, now and then, and when a window waits for kinds. */
static int begin_step(const Site *site, int thread, PyObject *args, uint64_t now) {
    PyObject *batch = PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : Py_None;
    PyObject *mode = read_name(batch, s_forward_mode), *requests = mode == NULL ? NULL : read_name(batch, s_reqs);
    if (requests == NULL) { Py_XDECREF(mode); return -1; }
    Py_ssize_t size = Py_TYPE(requests) == &PyList_Type ? PyList_Size(requests) : -1;
    uint64_t gap = now - step_ns;
    Py_DECREF(requests);
    if (step_ns && gap < PAUSE_NS) { busy_ns += gap; busy_steps++; }
    step_ns = now;
    step_thread = thread;
    step_now = ++last_step;
    uint64_t period = idle || !began_ns ? 0 : now - began_ns;
    Py_ssize_t size_before = size_now;
    began_ns = now; /* should the process end in this step, the head says so */
    size_now = size;
    inside_step = 1;
    put(head_at.began, now);
    put(head_at.size, (uint64_t)(int64_t)size);
    put(head_at.inside, 1);
    put(head_at.step, last_step);
    int changes = mode != mode_now || size != size_before;
    if ((changes && (attentive || !is_settled(mode, size, 0))) || last_step < full_until || last_step >= check_at) {
        check_at = last_step + CHECK_EVERY;
        PyObject *number = PyLong_FromUnsignedLong(last_step), *length = PyLong_FromSsize_t(size), *done = NULL;
        if (number != NULL && length != NULL)
            done = PyObject_CallFunctionObjArgs(on_step, site->site, number, mode, length, NULL);
        Py_XDECREF(number);
        Py_XDECREF(length);
        if (done == NULL) { Py_DECREF(mode); return -1; }
        if (done == Py_True) is_settled(mode, size, 1);
        Py_DECREF(done);
    }
    Py_XDECREF(mode_now);
    mode_now = mode;
    set_level(level_of(last_step));
    level_steps[level]++;
    measuring = level == FULL || (last_step & 15) == 5 || last_step < 16;
    level_measured[level] += (uint64_t)measuring;
    if (level == OFF) { idle = 1; return 0; }
    if (period && slot_now != NULL) count_interval(period);
    before_ns = period;
    before_wait_ns = wait_ns;
    idle = 0;
    wait_ns = 0;
    replays_now = compiled_now = 0;
    padded_now = -1;
    return 0;
}

/* The slot of a kind of step: NULL with an error set. */
static uint8_t *slot_of(PyObject *mode, int64_t size, int64_t width, int *is_new) {
    *is_new = 0;
    for (int i = 0; i < slot_count; i++)
        if (kinds_of_step[i].mode == mode && kinds_of_step[i].size == size && kinds_of_step[i].width == width) {
            Slot found = kinds_of_step[i];
            if (i) { kinds_of_step[i] = kinds_of_step[0]; kinds_of_step[0] = found; }
            return found.at;
        }
    new_things++;
    PyObject *answer = PyObject_CallFunction(on_slot, "OLL", mode, (long long)size, (long long)width);
    unsigned long long at = 0;
    if (answer == NULL || !PyArg_ParseTuple(answer, "Kp", &at, is_new)) { Py_XDECREF(answer); return NULL; }
    Py_DECREF(answer);
    if (slot_count < MAX_KINDS) {
        Py_INCREF(mode);
        kinds_of_step[slot_count++] = (Slot){mode, size, width, (uint8_t *)(uintptr_t)at};
    }
    return (uint8_t *)(uintptr_t)at;
}

/* An integer or a truth value among an object's own attributes; -1 where it has none of that name. */
static int64_t int_attribute(PyObject *value, PyObject *name, int *failed) {
    if (value == Py_None) return -1;
    PyObject *fields = PyObject_GenericGetDict(value, NULL), *found;
    if (fields == NULL) {
        PyErr_Clear();
        found = read_name(value, name);
    } else {
        found = PyDict_GetItemWithError(fields, name);
        Py_XINCREF(found);
        Py_DECREF(fields);
        if (found == NULL && !PyErr_Occurred()) return -1;
    }
    if (found == NULL) { *failed = 1; return -1; }
    int64_t number = -1;
    if (Py_TYPE(found) == &PyLong_Type) {
        number = PyLong_AsLongLong(found);
        if (number == -1 && PyErr_Occurred()) PyErr_Clear();
    } else if (found == Py_True || found == Py_False) {
        number = found == Py_True;
    }
    Py_DECREF(found);
    return number;
}

static int end_step(const Site *site, int thread, PyObject *result, uint64_t now, int raised) {
    int failed = 0, is_new;
    int64_t width = int_attribute(result, s_width, &failed), graph = failed ? -1 : int_attribute(result, s_graph, &failed);
    if (failed) return -1;
    uint8_t *slot = slot_of(mode_now, size_now, width, &is_new);
    if (slot == NULL) return -1;
    changed = slot != slot_now;
    slot_now = slot;
    window_before = window_flags;
    watched = level >= LIGHT;
    if (graph != 1) padded_now = -1;
    int64_t turn = turn_ns ? (int64_t)(began_ns - turn_ns) : -1;
    turn_ns = 0;
    add(slot, C_STEPS, 1);
    add(slot, C_RUN_NS, now - began_ns);
    if (turn >= 0) { add(slot, C_TURNS, 1); add(slot, C_TURN_NS, (uint64_t)turn); }
    if (graph >= 0) add(slot, graph ? C_REPLAYED : C_EAGER, 1);
    if (watched) {
        if (padded_now >= 0) { add(slot, C_PADDED, (uint64_t)padded_now); add(slot, C_PADDED_STEPS, 1); }
        add(slot, C_REPLAYS, (uint64_t)replays_now);
        add(slot, C_REPLAYS_STEPS, 1);
    }
    if (compiled_now) add(slot, C_COMPILED_STEPS, 1);
    if (window_flags) add(slot, C_WINDOW_STEPS, 1);
    if (watched) {
        int64_t flags = window_flags | (level == FULL ? FLAG_FULL : 0) | (raised ? FLAG_RAISED : 0) | (is_new ? FLAG_NEW : 0);
        int64_t ints[] = {size_now, (int64_t)(now - began_ns), flags, turn, (int64_t)before_ns, (int64_t)before_wait_ns,
                          graph, padded_now, watched ? replays_now : -1, width, compiled_now};
        uint32_t text = mode_now == unread || mode_now == Py_None
                            ? 0 : text_of((uint64_t)(uintptr_t)mode_now, mode_now, Py_None);
        if (!text && PyErr_Occurred()) PyErr_Clear();
        if (write_record(STEP, site->number, last_step, text, ints, 11, EAGER, thread, began_ns) < 0) return -1;
    }
    if (result != Py_None) {
        for (int i = 0; i < LINKS; i++) /* an older result may have lain there */
            if (links[i].result == result) links[i].result = NULL;
        links[link_at].result = result; /* compared, never used */
        links[link_at].step = last_step;
        links[link_at].slot = slot;
        links[link_at].recorded = watched;
        link_at = (link_at + 1) % LINKS;
    }
    return 0;
}

/* A decode step's result was processed: what it kept, from the first of the lists that are there. */
static int take_result(const Site *site, int thread, PyObject *args, PyObject *kwargs, uint64_t now) {
    const Side *side = &site->side[2];
    if (side->count == 0) return 0;
    Selector whole = side->selectors[0];
    whole.is_step = 0;
    PyObject *result = select_value(&whole, args, kwargs, Py_None);
    if (result == NULL) return -1;
    int link = 0;
    while (link < LINKS && links[link].result != result) link++;
    Py_DECREF(result);
    if (link == LINKS || links[link].slot == NULL) return 0;
    uint8_t *slot = links[link].slot;
    int64_t lengths[MAX_LIST], kept = 0;
    Py_ssize_t count = -1;
    for (int i = 1; i < side->count && count < 0; i++) {
        PyObject *list = select_value(&side->selectors[i], args, kwargs, Py_None);
        if (list == NULL) return -1;
        if (Py_TYPE(list) == &PyList_Type && PyList_Size(list) <= MAX_LIST) {
            count = PyList_Size(list);
            for (Py_ssize_t n = 0; n < count; n++) {
                PyObject *item = PyList_GetItem(list, n);
                if (item == NULL || Py_TYPE(item) != &PyLong_Type) { PyErr_Clear(); count = -1; break; }
                lengths[n] = PyLong_AsLong(item) + 1;
            }
        }
        Py_DECREF(list);
    }
    if (PyErr_Occurred()) PyErr_Clear();
    if (count < 0) {
        memcpy(&kept, slot + MODE_SIZE, 8); /* a token for each request */
        if (kept < 0) kept = 0;
    }
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t length = lengths[n] < 1 ? 1 : lengths[n] > KEPT ? KEPT : lengths[n];
        kept += lengths[n];
        count_one(slot + KEPT_AT + 4 * (length - 1));
    }
    add(slot, C_RESULTS, 1);
    add(slot, C_KEPT, (uint64_t)kept);
    links[link].slot = NULL; /* functions inside one another count it once */
    if (count < 0 || !links[link].recorded) return 0;
    return write_record(ACCEPT, site->number, links[link].step, 0, lengths, (int)count, EAGER, thread, now);
}

static void replayed(PyObject *args, int thread) {
    if (thread != step_thread || threads[thread].captures) return;
    int failed = 0;
    int64_t padded = PyTuple_Size(args) > 0 ? int_attribute(PyTuple_GetItem(args, 0), s_bs, &failed) : -1;
    if (failed) PyErr_Clear();
    replays_now++;
    if (padded > padded_now) padded_now = padded;
}
