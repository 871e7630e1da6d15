# Builds libwane_cuda.so for the simulated device (spec/cudasim/sim.h) out of the very files that nvcc compiles for a
# GPU, and a self-test of the simulation. There are three ways, each in a folder of its own under build/:
#   cudasim        for speed
#   cudasim-asan   under AddressSanitizer and UBSan; the process that loads it must have preloaded libasan.so
#   cudasim-hooks  with a watch over memory: races, sectors, bank conflicts (hooks.cpp)
CXX ?= g++
CUDA_INCLUDE ?= /usr/local/cuda/include
SIM_CUDA := $(wildcard kernels/cuda/*.cu runtime/device/cuda/*.cu)
SIM_C := runtime/base/type.c runtime/base/opcode.c kernels/cuda/workspace.c
SIM_HOST := $(wildcard spec/cudasim/*.cpp)
SIM_TEST := $(wildcard spec/cudasim/*.cu)
# The processor's fma where it has one: the same bits as libm's function, which is a call.
SIM_FMA := $(if $(shell grep -m 1 -o 'fma.*avx2\|avx2.*fma' /proc/cpuinfo 2>/dev/null),-mavx2 -mfma)
SIM_FLAGS := -O2 $(SIM_FMA) -ffp-contract=off -fno-math-errno -DWN_SIMULATED -DWN_CUDA_ARCHES=80,90 \
             -Ispec/cudasim -fPIC -fvisibility=hidden -Wall -Wextra -Werror
SIM_SANITIZED := -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
# Keeps loads and stores of whole structs, as a GPU has them, in one piece.
SIM_WHOLE := -fno-tree-sra -fno-tree-fre -fno-tree-pre

# $(1): the folder under build/, $(2): flags of all files, $(3): flags of the kernels alone
define simulated
build/$(1)/%.cu.o: %.cu Makefile spec/cudasim/rules.mk
	$$(call say,SIM,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) -std=c++17 $$(SIM_FLAGS) $(2) $(3) -MMD -MP -x c++ -c -o $$@ $$<
build/$(1)/runtime/device/cuda/open.cu.o: SIM_FLAGS += $(CUDA_TREE)
build/$(1)/runtime/device/cuda/open.cu.o: $(CUDA_TREE_FILES)
build/$(1)/%.cpp.o: %.cpp Makefile spec/cudasim/rules.mk
	$$(call say,SIM,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) -std=c++17 $$(SIM_FLAGS) $(2) -MMD -MP -c -o $$@ $$<
build/$(1)/%.c.o: %.c Makefile spec/cudasim/rules.mk
	$$(call say,SIM,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) -std=c11 -D_GNU_SOURCE $$(SIM_FLAGS) $(2) -MMD -MP -c -o $$@ $$<
build/$(1)/libwane_cuda.so: $$(patsubst %,build/$(1)/%.o,$$(SIM_CUDA) $$(SIM_C) $$(SIM_HOST))
	$$(call say,LINK,$$@)
	$$(Q)$$(CXX) -shared -Wl,-z,defs $(2) -o $$@.new $$^ -lm && mv -f $$@.new $$@
# cuRAND's headers, where the toolkit is, come after all others.
$$(patsubst %,build/$(1)/%.o,$$(SIM_TEST)): SIM_FLAGS += -idirafter $$(CUDA_INCLUDE) -idirafter $$(CUDA_INCLUDE)/cccl
build/$(1)/selftest: $$(patsubst %,build/$(1)/%.o,$$(SIM_TEST) $$(SIM_HOST))
	$$(call say,LINK,$$@)
	$$(Q)$$(CXX) $(2) -o $$@.new $$^ -lm && mv -f $$@.new $$@
.PHONY: $(1)
$(1): all
	$$(inner) build/$(1)/libwane_cuda.so build/$(1)/selftest
-include $$(patsubst %,build/$(1)/%.d,$$(SIM_CUDA) $$(SIM_C) $$(SIM_HOST) $$(SIM_TEST))
endef
$(eval $(call simulated,cudasim,,))
$(eval $(call simulated,cudasim-asan,$$(SIM_SANITIZED),))
$(eval $(call simulated,cudasim-hooks,-g -DWN_SIM_WATCHED,-fsanitize=thread $$(SIM_WHOLE)))
