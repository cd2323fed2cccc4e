# Sluice. `make run` is everything for the main job, `make test` everything for the tests.
#
#   make            build/release/sluice
#   make run        install what is missing, fetch the demo model, start everything under DIR
#   make test       units and end to end, plain and under sanitizers
#   make lint       format, clang-tidy, cppcheck, our own checks
#   make fuzz       each fuzz target for FUZZ_SECONDS
#   make bench      kernels, engine, gateway; results under bench/results
#   make install    into DESTDIR PREFIX
#
# SAN=address,undefined or SAN=thread builds into a folder of its own. Variables of `make run`: DIR,
# MODEL, PORT, TLS_PORT, ADMIN_PORT, DEPS=skip.

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
SAN ?=
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
export DIR MODEL PORT TLS_PORT ADMIN_PORT DEPS

# A make started by this one shares its jobs.
MAKEFLAGS += $(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc)) --no-print-directory

# The demo model, where tools/fetch_model.sh keeps it; the tests that need a real model read this.
export SLUICE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sluice
export SLUICE_TEST_MODEL ?= $(SLUICE_CACHE)/SmolLM2-135M-Instruct.Q4_1.gguf
# Real vocabularies and chat templates, where tools/fetch_references.sh keeps them.
export SLUICE_TEST_VOCABS ?= $(SLUICE_CACHE)/references-0.3.36/vocabs
export SLUICE_TEST_TEMPLATES ?= $(SLUICE_CACHE)/references-0.3.36/templates
# Small random models of every architecture and tensor type.
export SLUICE_TEST_MODELS ?= $(CURDIR)/build/models

comma := ,
# Short lines; V=1 shows the commands.
Q := $(if $(V),,@)

FLAVOUR := $(if $(SAN),$(subst $(comma),-,$(SAN)),release)
B := build/$(FLAVOUR)
# libh2o 2.2.5 keeps caches of its own until the process ends.
export LSAN_OPTIONS := suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0
export TSAN_OPTIONS := suppressions=$(CURDIR)/tests/tsan.supp:halt_on_error=1
BUILD_ID := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
        -Wformat=2 -Wvla -Wundef
# No contraction of a*b+c into fma by the compiler: kernels say where they fuse, so that every build
# of one instruction set computes the same bits.
# Sanitized: for reports with line numbers, compiled in two thirds of the time. Warnings are the plain build's matter: some
# depend on what the optimizer sees.
CFLAGS ?= $(if $(SAN),-O1 -g1 -w,-O2 -g)
# No AVX in code that runs before the machine was asked: variants have files of their own.
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -I. -ffp-contract=off -fno-strict-aliasing -pthread \
             -fstack-protector-strong $(WARN) $(CFLAGS) $(SAN_FLAGS) -MMD -MP
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
LDLIBS := -lseccomp -ljansson -lpcre2-8 -lutf8proc -lyaml -lxxhash -lhiredis -lpq -lh2o-evloop -lssl -lcrypto -lz -lm
PQ_INC := -isystem /usr/include/postgresql

LIB_DIRS := base store auth quota billing engine engine/model engine/text engine/wire engine/backend \
            engine/core engine/cpu api
LIB_SRC := $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c))
APP_SRC := $(wildcard app/*.c app/*/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/obj/%.o) $(B)/obj/gen/embedded.o
APP_OBJ := $(APP_SRC:%.c=$(B)/obj/%.o)
LIB := $(B)/libsluice.a

# A test program per file tests/unit/FOLDER/test_NAME.c, which needs nothing but itself, and
# tests/integration/FOLDER/test_NAME.c, which starts its own PostgreSQL and Redis; helpers in tests/lib.
# Those of the longest run come first, so that no core waits for the last one.
UNIT_SRC := $(wildcard tests/unit/engine/cpu/test_*.c) \
    $(filter-out tests/unit/engine/cpu/%,$(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
# engine/text is pure functions of one thread, and test_invariance compares bits of a device whose threads
# test_device and test_threads show, and the scheduler with its simulations is of one thread: ThreadSanitizer has nothing
# more to see there, and takes minutes for it.
TSAN_LEAVES_OUT := $(B)/unit/engine/text/% $(B)/unit/engine/cpu/test_invariance $(B)/unit/engine/core/test_scheduler% \
    $(addprefix $(B)/unit/engine/core/test_,service service_classes simulator exchange step_time)
UNIT_BIN := $(filter-out $(if $(findstring thread,$(SAN)),$(TSAN_LEAVES_OUT)),$(UNIT_SRC:tests/unit/%.c=$(B)/unit/%))
INTEGRATION_SRC := $(wildcard tests/integration/*/test_*.c)
INTEGRATION_BIN := $(INTEGRATION_SRC:tests/integration/%.c=$(B)/integration/%)
# Commands whose objects tests may link (config, the launcher's pure parts): all of app/ but main.
APP_LIB := $(B)/libapp.a
TLIB_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/lib/*.c))

# SQL and Lua travel inside the binary.
EMBED_SRC := $(wildcard migrations/*.sql quota/*.lua)

.PHONY: all run test check unit emulated integration e2e lint fuzz bench next install clean venv
all: $(B)/sluice

$(B)/sluice: $(APP_OBJ) $(LIB)
	$(Q)$(if $(V),,echo "link $@" &&) $(CC) $(SAN_FLAGS) -pthread -rdynamic -o $@ $(APP_OBJ) $(LIB) $(LDFLAGS) $(LDLIBS)

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $(LIB_OBJ)

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(if $(V),,echo "cc $<" &&) $(CC) $(ALL_CFLAGS) $(EXTRA) -c -o $@ $<

# What a folder needs beyond the common flags.
$(B)/obj/api/%.o: EXTRA = -DH2O_USE_LIBUV=0
$(B)/obj/store/%.o: EXTRA = $(PQ_INC)
# Sanitized servers compute most of their time here.
$(B)/obj/engine/cpu/%.o: EXTRA = $(if $(SAN),-O2)
# ThreadSanitizer looks at the scalar kernels, which compute the same parts of the same work: the vector ones take
# minutes under it.
NO_TSAN := $(if $(findstring thread,$(SAN)),-fno-sanitize=thread)
# A kernel per type and tile, all inlined: sanitized, -O3 would compile them for minutes.
VECTOR_OPT := $(if $(SAN),-O1 -fno-var-tracking,-O3)
# Code that this machine can't run needs no checks: they are a minute of the compiler's time.
NO_CHECKS_512 := $(if $(SAN),$(if $(shell grep -m1 -w avx512f /proc/cpuinfo),$(NO_TSAN),-fno-sanitize=$(SAN)))
$(B)/obj/engine/cpu/%_avx2.o: EXTRA = $(VECTOR_OPT) $(NO_TSAN) -mavx2 -mfma -mf16c
$(B)/obj/engine/cpu/%_avx512.o: EXTRA = $(VECTOR_OPT) $(NO_CHECKS_512) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c

# The build id changes with every commit: only this object depends on it.
$(B)/build_id: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_ID)' | cmp -s - $@ || echo '$(BUILD_ID)' > $@
$(B)/obj/app/version.o: $(B)/build_id
$(B)/obj/app/version.o: EXTRA = -DSLUICE_BUILD='"$(BUILD_ID)"'
.PHONY: FORCE

# migrations/*.sql and quota/*.lua become objects through the assembler's .incbin.
$(B)/gen/embedded.c: $(EMBED_SRC) tools/embed.sh
	@mkdir -p $(@D)
	sh tools/embed.sh $(EMBED_SRC) > $@.tmp && mv $@.tmp $@
$(B)/obj/gen/embedded.o: $(B)/gen/embedded.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(APP_LIB): $(APP_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $(filter-out %/app/main.o,$(APP_OBJ))

TEST_LIBS = $(TLIB_OBJ) $(APP_LIB) $(LIB)
TEST_LINK = $(Q)$(if $(V),,echo "link $@" &&) $(CC) $(SAN_FLAGS) -pthread -o $@ $< $(TEST_LIBS) $(LDFLAGS) -lcmocka $(LDLIBS)
$(B)/unit/%: $(B)/obj/tests/unit/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(TEST_LINK)
$(B)/integration/%: $(B)/obj/tests/integration/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(TEST_LINK)
.SECONDARY:

build/models/made: tools/make_model.py $(wildcard tools/models/*.py) | .venv/installed
	.venv/bin/python tools/make_model.py build/models
	@touch $@

unit: $(UNIT_BIN) build/models/made
	@sh tests/run_units.sh $(UNIT_BIN)

integration: $(INTEGRATION_BIN)
	@sh tests/run_units.sh $(INTEGRATION_BIN)

# The AVX-512 kernels on a machine without AVX-512: SIMDe computes each intrinsic in plain C. These
# objects come before the library's. At -O2 gcc would take minutes for them.
EMU := build/emulated
EMU_OBJ := $(EMU)/kernels_avx512.o $(EMU)/kv_q8_avx512.o $(EMU)/matmul_avx512.o $(EMU)/isa.o
$(EMU)/%_avx512.o: engine/cpu/%_avx512.c tests/emulated/immintrin.h $(wildcard engine/cpu/*.h)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -Werror,$(ALL_CFLAGS)) -O1 -g0 -w -Wno-psabi -Itests/emulated -mf16c -c -o $@ $<
$(EMU)/isa.o: tests/emulated/isa.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(EMU)/test_%: $(B)/obj/tests/unit/engine/cpu/test_%.o $(EMU_OBJ) $(TEST_LIBS)
	$(Q)$(CC) -pthread -o $@ $< $(EMU_OBJ) $(TEST_LIBS) $(LDFLAGS) -lcmocka $(LDLIBS)
emulated: $(EMU)/test_kernels $(EMU)/test_quant_types $(EMU)/test_device $(EMU)/test_invariance
	@sh tests/run_units.sh $^

# The official SDKs against the real server, PostgreSQL, Redis and model. PYTEST_ARGS narrows it.
# Sanitized builds run those that take the server's paths; what they leave out (figures, the launcher's
# waits) says nothing about memory or threads. They run the model's first two blocks, since they compute many
# times slower.
SHALLOW := build/shallow/$(notdir $(SLUICE_TEST_MODEL))
$(SHALLOW): tools/shallow_gguf.py | $(SLUICE_TEST_MODEL)
	@mkdir -p $(@D)
	python3 $< $(SLUICE_TEST_MODEL) $@ 2
E2E := $(if $(SAN),$(addprefix tests/e2e/,test_schemas.py test_bad_input.py test_disconnect.py test_limits.py \
    test_kill.py),tests/e2e)
e2e: $(B)/sluice venv build/models/made $(if $(SAN),$(SHALLOW),next)
	$(if $(SAN),SLUICE_TEST_MODEL=$(CURDIR)/$(SHALLOW)) SLUICE_BIN=$(CURDIR)/$(B)/sluice .venv/bin/python -m pytest -c tests/e2e/pytest.ini $(E2E) $(PYTEST_ARGS)

# All tests of one build.
check:
	$(MAKE) all
	$(MAKE) unit
	$(MAKE) integration
	$(MAKE) e2e

# Everything for the tests: what is missing is installed and fetched first. tests/run_stages.py has the stages' order and
# which of them run side by side; their output lies under build/logs.
test:
	sh tools/deps.sh test
	sh tools/fetch_model.sh
	sh tools/fetch_references.sh
	$(MAKE) venv build/models/made
	python3 tests/run_stages.py $(MAKEOVERRIDES)

venv: .venv/installed
.venv/installed: tests/requirements.txt
	test -x .venv/bin/python || python3 -m venv .venv
	.venv/bin/pip -q --disable-pip-version-check install -r tests/requirements.txt
	@touch $@

run:
	@sh tools/run.sh

lint: all
	@sh tests/lint/run.sh $(B)/sluice

bench: all
	@sh bench/run.sh $(B)/sluice

# The same program with the next version of the frames: a gateway of it and ours share an engine in
# tests/e2e/test_rolling.py.
NEXT_WIRE := $(shell sed -n 's/^\#define WIRE_VERSION_MAX \([0-9]*\)$$/\1/p' engine/wire/wire.h | awk '{print $$1 + 1}')
next:
	$(MAKE) all B=build/next CFLAGS="$(CFLAGS) -DWIRE_VERSION_MAX=$(NEXT_WIRE)"

install: all
	install -D -m 0755 $(B)/sluice $(DESTDIR)$(PREFIX)/bin/sluice

clean:
	rm -rf build

# Fuzz targets: clang's libFuzzer over tests/fuzz/fuzz_NAME.c with corpus tests/fuzz/corpus/NAME.
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)
FUZZ_CFLAGS = -O1 -g1 $(filter-out -O2 -g,$(ALL_CFLAGS)) -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
# No fuzz target computes, starts a server or asks a database; an object that is missing here is told by the linker.
FUZZ_OBJ := $(patsubst %.c,build/fuzz/obj/%.o,$(filter-out store/% engine/backend/% engine/cpu/% app/up/% app/main.c, \
                $(LIB_SRC) $(APP_SRC)) $(wildcard tests/lib/*.c)) build/fuzz/obj/gen/embedded.o
build/fuzz/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(if $(V),,echo "fuzz cc $<" &&) clang $(FUZZ_CFLAGS) $(FUZZ_EXTRA) -c -o $@ $<
build/fuzz/obj/gen/embedded.o: $(B)/gen/embedded.c
	@mkdir -p $(@D)
	clang $(FUZZ_CFLAGS) -c -o $@ $<
build/fuzz/obj/api/%.o: FUZZ_EXTRA = -DH2O_USE_LIBUV=0
build/fuzz/libsluice.a: $(FUZZ_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $(FUZZ_OBJ)
build/fuzz/fuzz_%: tests/fuzz/fuzz_%.c build/fuzz/libsluice.a
	$(Q)$(if $(V),,echo "fuzz link $@" &&) clang $(subst fuzzer-no-link,fuzzer,$(FUZZ_CFLAGS)) \
	    -o $@ $< build/fuzz/libsluice.a $(LDLIBS)
fuzz: $(FUZZ_BIN)
	@sh tests/run_fuzz.sh $(FUZZ_SECONDS) $(FUZZ_BIN)

-include $(shell find $(B)/obj build/fuzz -name '*.d' 2>/dev/null)
