# How Wane is built, tried and checked. `make` builds build/libwane.so and build/wane; `make help` lists the rest.
#
# Sources are found by wildcard: a new file under runtime/ or kernels/ is built without a line here. Each
# way of building (release, asan) has a folder of objects of its own, so changing over rebuilds nothing.
# Invariant: `all` never touches the network; only `deps` (and what needs it) may, and only for what is missing.
MODE ?= release
CC = gcc
OBJCOPY = $(shell $(CC) -print-prog-name=objcopy)
LUAJIT ?= luajit
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CFLAGS_EXTRA ?=

O := build/$(MODE)
# The CPU's kernels are compiled once for each class of processors (kernels/cpu/backend/class.h), with its flags and its
# own folder of micro-kernels; kernels/cpu/backend is compiled once for all. Slowest class first.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
CLASSES := plain $(if $(filter x86_64,$(MACHINE)),avx2 avx512) $(if $(filter aarch64,$(MACHINE)),neon)
CLASS_FLAGS_avx2 := -mavx2 -mfma
CLASS_FLAGS_avx512 := -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprfchw
CLASS_SOURCES := $(wildcard kernels/cpu/*.c $(foreach r,common element row image index gemm attention conv,kernels/cpu/$r/*.c))
class_objects = $(patsubst %.c,$(O)/$1/%.o,$(CLASS_SOURCES) $(wildcard kernels/cpu/$1/*.c))
SOURCES := $(wildcard runtime/*/*.c runtime/plan/*/*.c runtime/run/*/*.c kernels/cpu/backend/*.c) \
           $(filter-out kernels/cpu/%,$(wildcard kernels/*/*.c kernels/*/*/*.c))
OBJECTS := $(SOURCES:%.c=$(O)/%.o) $(O)/cdef.o
# CLASS_OBJECTS are linked into one object a class, $(O)/<class>/cpu.o.
CLASS_OBJECTS := $(foreach c,$(CLASSES),$(call class_objects,$c))
LINKED := $(OBJECTS) $(CLASSES:%=$(O)/%/cpu.o)
HEADERS := $(wildcard runtime/wane*.h)
LIBRARY_release := build/libwane.so
LIBRARY := $(or $(LIBRARY_$(MODE)),$(O)/libwane.so)

OPT_release := -O2
# Measured: spec/zoo_spec.lua takes 186 s of processor time at -O1 and 27 s at -O2. -g1 tells lines, and no variables.
OPT_asan := -O2 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
OPT_fuzz := -O1 -gline-tables-only -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
            -fno-sanitize-recover=undefined
# clang does not vectorise every loop that gcc does, and says so.
KERNEL_OPT_fuzz := -Wno-pass-failed
KERNEL_OPT_release := -O3
# Measured: a step of small layers takes 3 to 8 % less than at -O2, and all of runtime/ 25 s to compile.
RUNTIME_OPT_release := -O3 -fno-plt
# Under the sanitizers all but the smallest outputs go the way of those larger than the caches
# (kernels/cpu/common/nontemporal.h).
KERNEL_OPT_asan := -DWN_STREAM_PRESET=256
CFLAGS := -std=c11 -D_GNU_SOURCE -pthread -fopenmp-simd -fPIC -ffp-contract=off -fvisibility=hidden \
          -Wall -Wextra -Werror $(OPT_$(MODE))
KERNEL_FLAGS := -fno-math-errno -fno-trapping-math
$(O)/kernels/%.o: CFLAGS += $(KERNEL_OPT_$(MODE)) $(KERNEL_FLAGS)
$(O)/runtime/%.o: CFLAGS += $(RUNTIME_OPT_$(MODE))
# Under the sanitizers these call a function for each check, and are optimised less.
# Measured: compiling them takes 22 s of processor time, 130 s without (gcc 12).
$(foreach c,$(CLASSES),$(foreach f,image/pool image/taps conv/depthwise $c/attention $c/gemm $c/gemm_bf16,build/asan/$c/kernels/cpu/$f.o)): \
    CFLAGS += -O1 --param asan-instrumentation-with-call-threshold=0
LDFLAGS := -shared -pthread -Wl,-z,nodelete -Wl,-z,defs $(filter -fsanitize%,$(OPT_$(MODE)))
LDLIBS := -lm -ldl

# LuaRocks hands some of these over; without it they follow from PREFIX.
LUADIR ?= $(PREFIX)/share/lua/5.1
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))
# The inner make builds in parallel; the outer one keeps `make clean test` in order.
jobs = $(if $(findstring j,$(firstword -$(MAKEFLAGS))),,-j$(JOBS))
inner = +$(Q)$(MAKE) --no-print-directory $(jobs)

.PHONY: all found library deps demo repl test check check-all lint format asan fuzz bench doc mutants install uninstall clean help
.DELETE_ON_ERROR:

all: found
	$(inner) library

library: $(LIBRARY) build/wane

found:
	@sh spec/support/found.sh "$(CC)" "$(LUAJIT)"

help:
	@echo 'make            build/libwane.so and build/wane'
	@echo 'make demo       builds, then trains the heavy-layer network under four policies'
	@echo 'make repl       a prompt'
	@echo 'make test       lint and the specs that find most, in at most 3 minutes; the last line counts them'
	@echo '                SPEC=spec/op_spec.lua runs that file alone'
	@echo 'make check      what every change must pass, in at most 15 minutes: specs, lint, the doc build; some under'
	@echo '                sanitizers; by turns without the JIT, under collector stress, for aarch64, on the simulated GPU, a fuzz'
	@echo 'make check-all  everything, in every way, mutants, ten minutes of fuzz'
	@echo 'make lint format asan doc bench mutants  parts of it, and what takes longer'
	@echo 'make fuzz       random calls and files under the sanitizers, FUZZ_SECONDS=$(FUZZ_SECONDS) in all'
	@echo 'make cuda       build/libwane_cuda.so for GPUs, by nvcc; WANE_CUDA_ARCH=90 for one architecture alone'
	@echo 'make cudasim    libwane_cuda.so for a simulated GPU: WANE_CUDA_LIB=build/cudasim runs on it'
	@echo 'make cudasim-asan cudasim-hooks       under the sanitizers; with a watch for races, sectors and bank conflicts'
	@echo 'make gpu-check  checks the GPU of this machine; WANE_CUDA_LIB=build/cudasim: the simulated one'
	@echo 'make gpu-bundle build/gpu/wane-gpu.tar, with which check.sh does that where nothing can be installed'
	@echo 'make gpu-whatif predicts a step of GPT-2 on an H100, change by change; build/gpu/whatif.txt'
	@echo 'make deps       installs what is missing for all of these'
	@echo 'make install uninstall                PREFIX=$(PREFIX), DESTDIR; LUADIR, BINDIR, LIBDIR, INCDIR, DATADIR'
	@echo 'make clean      V=1 shows commands'

# ---- the library ----------------------------------------------------------------------------------------
$(LIBRARY): $(LINKED) $(O)/objects
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(CFLAGS_EXTRA) -o $@.new $(LINKED) $(LDLIBS) && mv -f $@.new $@

# Lists are prerequisites that change only when they differ: a file taken away must relink too, and another list of
# classes compiles their table anew.
write_list = @mkdir -p $(O) && echo '$1' | cmp -s - $@ || echo '$1' > $@
$(O)/objects: always
	$(call write_list,$(OBJECTS) $(CLASS_OBJECTS))
$(O)/classes: always
	$(call write_list,$(CLASSES))
.PHONY: always

compile = $(Q)$(CC) $(CFLAGS) $(CFLAGS_EXTRA) -MMD -MP -c -o $@ $<
$(O)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(compile)

# The objects of a class, and all of them as one whose only symbol is the door of the class. `make flags-<class>` prints
# the flags, for specs that compile kernels by themselves.
define class_rules
$(O)/$1/kernels/%.o: CFLAGS += $(KERNEL_OPT_$(MODE)) $(KERNEL_FLAGS) $(CLASS_FLAGS_$1) -DWN_CPU_CLASS=$1
$(O)/$1/%.o: %.c Makefile
	$$(call say,CC,'$$< ($1)')
	@mkdir -p $$(@D)
	$$(compile)
$(O)/$1/cpu.o: $(call class_objects,$1) $(O)/objects
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) -r -nostdlib -o $$@.all $$(filter %.o,$$^)
	$$(Q)$$(OBJCOPY) --keep-global-symbol=wn__cpu_class_$1 $$@.all $$@ && rm -f $$@.all
flags-$1:
	@echo '$(CLASS_FLAGS_$1)'
.PHONY: flags-$1
endef
$(foreach c,$(CLASSES),$(eval $(call class_rules,$c)))
$(O)/avx512/kernels/cpu/avx512/gemm_bf16.o: CFLAGS += -mavx512bf16
# gcc's first pass of scheduling moves loads of later steps ahead, which takes more registers than there are.
# Measured: instructions a multiply-add of a register tile: 1.46 with 11 spills a turn, 1.29 with none (gcc 12).
$(O)/neon/kernels/cpu/neon/gemm.o: CFLAGS += $(if $(findstring clang,$(CC)),,-fno-schedule-insns)
$(O)/kernels/cpu/backend/class.o: CFLAGS += '-DWN_CPU_CLASSES=${CLASSES:%=CLASS(%)}'
$(O)/kernels/cpu/backend/class.o: $(O)/classes

# The headers as LuaJIT's ffi.cdef wants them, carried inside the library so that the two cannot drift.
$(O)/cdef.c: $(HEADERS) runtime/base/shared.h Makefile
	$(call say,CDEF,$@)
	@mkdir -p $(@D)
	$(Q)printf '#include "%s"\n' $(HEADERS) | $(CC) -E -P -DWANE_CDEF -I. -x c - > $(O)/wane.cdef
	$(Q){ echo '__attribute__((visibility("default"))) const char *wn_cdef(void);'; \
	  echo 'const char *wn_cdef(void)'; echo '{'; echo '    return'; \
	  sed -e 's/[\\"]/\\&/g' -e 's/.*/        "&\\n"/' $(O)/wane.cdef; echo '    ;'; echo '}'; } > $@

$(O)/cdef.o: $(O)/cdef.c
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_EXTRA) -c -o $@ $<

# The checksum of what libwane.so and libwane_cuda.so must agree on: opcodes, attributes, workspaces, structs. The door
# between them compares it (runtime/device/cuda_library.h), so a library of other sources is refused.
CUDA_TREE_FILES := $(wildcard runtime/op.def runtime/status.def runtime/device/device.h runtime/device/cuda_library.h runtime/base/*.h \
                   runtime/base/type.c runtime/base/opcode.c kernels/*.h kernels/*.inc kernels/cuda/cuda.h kernels/cuda/conv.h kernels/cuda/cudnn.h \
                   kernels/cuda/sort.h kernels/cuda/table.h kernels/cuda/workspace.c)
CUDA_TREE := -DWN_CUDA_TREE=$(firstword $(shell cat $(CUDA_TREE_FILES) | cksum))
$(O)/runtime/device/cuda.o: CFLAGS += $(CUDA_TREE)
$(O)/runtime/device/cuda.o: $(CUDA_TREE_FILES)

build/wane: lua/wane/cli/launcher.sh
	$(call say,COPY,$@)
	@mkdir -p build
	$(Q)cp $< $@.new && chmod 755 $@.new && mv -f $@.new $@

-include $(wildcard $(SOURCES:%.c=$(O)/%.d) $(CLASS_OBJECTS:%.o=%.d))

# ---- trying it --------------------------------------------------------------------------------------------
deps:
	@sh spec/support/deps.sh check

demo:
	@sh spec/support/deps.sh demo
	@$(MAKE) --no-print-directory all
	$(Q)$(LUAJIT) examples/heavylayer.lua

repl: all
	$(Q)build/wane repl

# BENCH: which of them, e.g. make bench BENCH=rival. rival and budget meet the PyTorch of $PYTHON, and publish.lua puts
# their results into README.md, spec/README.md and spec/bench/RESULTS.md. gemm and conv are the halves of products.
BENCH ?= overhead products layout attention exact kernels fused planner ablation budget rival
bench: all
	$(Q)set -e; for b in $(BENCH); do \
	    case $$b in gemm) set -- products matrices ;; conv) set -- products convolutions ;; *) set -- $$b ;; esac; \
	    echo "== spec/bench/$$1.lua $$2"; $(LUAJIT) spec/bench/$$1.lua $$2; done
	$(Q)$(LUAJIT) spec/bench/publish.lua $(BENCH)

# ---- the GPU --------------------------------------------------------------------------------------------
include kernels/cuda/rules.mk

# ---- MPI ------------------------------------------------------------------------------------------------------
include runtime/link/rules.mk

# ---- the simulated GPU -------------------------------------------------------------------------------------
comma := ,
include $(wildcard spec/cudasim/rules.mk)

# ---- checking a real GPU -----------------------------------------------------------------------------------
include $(wildcard spec/gpu/rules.mk)

# ---- checking it --------------------------------------------------------------------------------------------
# The tiers: spec/support/tiers.sh says what each runs, spec/support/check.sh runs it. The closing line is looked for: a
# spec that calls os.exit(0), or a crash, leaves none and fails the target.
# SPEC: what to run instead, e.g. make test SPEC=spec/op_spec.lua, which builds what these files need: the simulated GPU for
# specs of CUDA alone.
SPEC ?=
test:
ifeq ($(strip $(SPEC)),)
	@sh spec/support/deps.sh test
	@MAKE='$(MAKE)' sh spec/support/check.sh test
else
	@sh spec/support/deps.sh spec
	@$(MAKE) --no-print-directory all $(if $(filter spec/cuda%,$(SPEC)),cudasim)
	@sh spec/support/suite.sh plain $(SPEC)
endif

# The sanitizers watch the class of kernels that this processor gets: compiling all of them takes a minute more.
asan:
	@sh spec/support/deps.sh spec
	@$(MAKE) --no-print-directory all
	$(inner) MODE=asan CLASSES="$$(build/wane version | sed -n 's/^kernels *\([a-z0-9]*\).*/\1/p')" library
	@sh spec/support/suite.sh asan $(SPEC)

# Random calls, trainings and files under libFuzzer and the sanitizers, and files for the readers in Lua, from nothing:
# FUZZ_SECONDS in all, shared by the drivers; FUZZ_SEED draws others. The kernels are those of class plain, under the
# sanitizers too: clang takes many minutes to instrument the tiles of AVX-512, which `make asan` watches.
FUZZ_SECONDS ?= 600
FUZZ_CC ?= clang
FUZZERS := $(patsubst spec/fuzz/%.c,build/fuzz/%,$(wildcard spec/fuzz/fuzz_*.c))
fuzz:
	@sh spec/support/deps.sh fuzz
	@$(MAKE) --no-print-directory all
	$(inner) MODE=fuzz CC='$(FUZZ_CC)' CLASSES=plain fuzzers
	@LUAJIT='$(LUAJIT)' sh spec/support/fuzz.sh $(FUZZ_SECONDS) $(FUZZERS) spec/fuzz/readers.lua

.PHONY: fuzzers
fuzzers: $(FUZZERS)
build/fuzz/fuzz_%: spec/fuzz/fuzz_%.c $(wildcard spec/fuzz/*.h) $(LINKED)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -Iruntime -fsanitize=fuzzer,address,undefined -o $@ $< $(LINKED) $(LDLIBS)

lint:
	@sh spec/support/deps.sh test
	@sh spec/support/lint.sh

# Brings the C files into the form that lint asks for (scalar.h is a table: one row a line).
format:
	find runtime kernels spec/cudasim \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cpp' \) \
	    ! -name scalar.h -exec clang-format -i {} +

check:
	@sh spec/support/deps.sh check
	@MAKE='$(MAKE)' sh spec/support/check.sh check

check-all:
	@sh spec/support/deps.sh check
	@MAKE='$(MAKE)' sh spec/support/check.sh all

doc:
	@sh spec/support/deps.sh doc
	$(Q)rm -rf build/doc
	$(Q)ldoc --fatalwarnings --quiet .

mutants: all
	$(Q)$(LUAJIT) spec/mutants/run.lua $(MUTANT)

# ---- installing it --------------------------------------------------------------------------------------------
# The libraries lie in LIBDIR, with links to them beside the Lua files, where ffi.lua looks first; so any place works with
# nothing exported. The public headers go to INCDIR/wane, with the headers that they include. The examples look for
# Wane's Lua files beside their folder, so a link stands there too, and another one where `wane.zoo` is looked for.
version = $(shell sed -n 's/^    return "\([0-9.]*\)";/\1/p' runtime/api/library.c)
libraries = $(LIBRARY) $(wildcard build/libwane_cuda.so build/libwane_mpi-*.so)
at = '$(DESTDIR)$(1)'
COMPLETIONS := bash-completion/completions/wane zsh/site-functions/_wane

# Folders that an installation makes are listed in DATADIR/wane/folders, without DESTDIR, the deepest first, so that
# `make uninstall` takes away those that are empty then, and no others.
FOLDERS = '$(LUADIR)/wane' '$(BINDIR)' '$(LIBDIR)/pkgconfig' '$(INCDIR)/wane' '$(DATADIR)/wane' '$(DATADIR)/man/man1' \
          $(foreach file,$(COMPLETIONS),'$(DATADIR)/$(dir $(file))')
list = $(call at,$(DATADIR)/wane/folders)

install: all
	$(Q)made=$$(for folder in $(FOLDERS); do while [ "$$folder" != / ] && [ ! -d '$(DESTDIR)'"$$folder" ]; do echo "$$folder"; \
	  folder=$$(dirname "$$folder"); done; done); for folder in $(FOLDERS); do mkdir -p '$(DESTDIR)'"$$folder" || exit 1; done; \
	  [ -z "$$made" ] || echo "$$made" >> $(list); sort -ru -o $(list) $(list) 2>/dev/null || :
	$(Q)find lua/wane -type d | while read -r folder; do \
	  install -D -m 644 -t $(call at,$(LUADIR))/"$${folder#lua/}" "$$folder"/*.lua || exit 1; done
	$(Q)for library in $(libraries); do name=$${library##*/}; install -m 755 $$library $(call at,$(LIBDIR)) || exit 1; \
	  [ '$(LIBDIR)' = '$(LUADIR)/wane' ] || ln -sfr $(call at,$(LIBDIR))/$$name $(call at,$(LUADIR)/wane)/$$name || exit 1; done
	$(Q)sed "s|^installed=.*|installed='$(LUADIR)'|" build/wane > $(call at,$(BINDIR)/wane) && chmod 755 $(call at,$(BINDIR)/wane)
	$(Q)$(CC) -MM $(HEADERS) | tr ' ' '\n' | grep '^runtime/.*\.h$$' | sort -u | while read -r header; do \
	  install -D -m 644 "$$header" $(call at,$(INCDIR)/wane)/"$${header#runtime/}" || exit 1; done
	$(Q)printf '%s\n' 'libdir=$(LIBDIR)' 'Name: wane' 'Description: a training runtime that obeys a memory plan to the byte' 'Version: $(version)' \
	  'Cflags: -I$(INCDIR)/wane' 'Libs: -L$${libdir} -lwane' > $(call at,$(LIBDIR)/pkgconfig/wane.pc)
	$(Q)for folder in examples $(filter-out %/out,$(patsubst %/,%,$(wildcard examples/*/))); do \
	  install -D -m 644 -t $(call at,$(DATADIR)/wane)/$$folder $$(find $$folder -maxdepth 1 -type f) || exit 1; done
	$(Q)ln -sfrn $(call at,$(LUADIR)) $(call at,$(DATADIR)/wane/lua)
	$(Q)ln -sfrn $(call at,$(DATADIR)/wane/examples/zoo) $(call at,$(LUADIR)/wane/zoo)
	$(Q)LUAJIT='$(LUAJIT)' build/wane man > $(call at,$(DATADIR)/man/man1/wane.1)
	$(Q)for file in $(COMPLETIONS); do \
	  LUAJIT='$(LUAJIT)' build/wane completion $${file%%[-/]*} > $(call at,$(DATADIR))/$$file || exit 1; done
	@echo 'installed wane in $(DESTDIR)$(PREFIX) (V=1 shows each step)'

uninstall:
	$(Q)made=$$(cat $(list) 2>/dev/null); \
	  rm -rf $(call at,$(LUADIR)/wane) $(call at,$(INCDIR)/wane) $(call at,$(DATADIR)/wane); \
	  rm -f $(call at,$(BINDIR)/wane) $(call at,$(LIBDIR)/libwane.so) $(call at,$(LIBDIR)/libwane_cuda.so) \
	    $(call at,$(LIBDIR))/libwane_mpi-*.so \
	    $(call at,$(LIBDIR)/pkgconfig/wane.pc) $(call at,$(DATADIR)/man/man1/wane.1) $(COMPLETIONS:%='$(DESTDIR)$(DATADIR)/%'); \
	  echo "$$made" | while read -r folder; do rmdir '$(DESTDIR)'"$$folder" 2>/dev/null || :; done
	@echo 'uninstalled wane from $(DESTDIR)$(PREFIX)'

clean:
	rm -rf build
