# Builds build/libwane_cuda.so: the kernels and the device's functions by nvcc, for every architecture that the compiler
# knows of those that Wane supports, with the CUDA runtime inside. WANE_CUDA_ARCH=90 builds for one alone, which is
# quick, WANE_CUDA_ARCH=75,90 for two; WANE_CUDA_COMPRESS=speed leaves code large, which is a quarter quicker.
# WANE_CUDA_OUT is the folder of the library.
WANE_CUDA_ARCH ?=
WANE_CUDA_OUT ?= build
CUDA_FILES := $(wildcard kernels/cuda/*.cu runtime/device/cuda/*.cu)
CUDA_C := runtime/base/type.c runtime/base/opcode.c kernels/cuda/workspace.c
CUDA_O := build/cuda$(WANE_CUDA_ARCH)
CUDA_OBJECTS := $(CUDA_FILES:%=$(CUDA_O)/%.o) $(CUDA_C:%=$(CUDA_O)/%.o)
ifneq ($(filter cuda cuda-library,$(MAKECMDGOALS)),)
NVCC := $(shell sh kernels/cuda/nvcc.sh find)
GENCODE := $(if $(NVCC),$(shell WANE_CUDA_COMPRESS=$(WANE_CUDA_COMPRESS) sh kernels/cuda/nvcc.sh gencode '$(NVCC)' $(WANE_CUDA_ARCH)))
endif
# An fma is where it is written, as on the CPU: -fmad=false. What ptxas says of registers and spills stays in
# FILE.ptxas.
CUDA_FLAGS = -O3 -std=c++17 -lineinfo -fmad=false -Xptxas -v -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(GENCODE)

$(CUDA_O)/runtime/device/cuda/open.cu.o: CUDA_FLAGS += $(CUDA_TREE)
$(CUDA_O)/runtime/device/cuda/open.cu.o: $(CUDA_TREE_FILES)

.PHONY: cuda cuda-library
cuda: all
	@sh kernels/cuda/nvcc.sh find
	$(inner) cuda-library

cuda-library: $(WANE_CUDA_OUT)/libwane_cuda.so

# Another compiler, or other options of it, build everything anew: $(CUDA_O)/options changes only when they do.
$(CUDA_O)/options: always
	@mkdir -p $(CUDA_O) && { echo '$(GENCODE)'; '$(NVCC)' --version; } >$@.new 2>&1; \
	  if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi

$(CUDA_O)/%.cu.o: %.cu Makefile kernels/cuda/rules.mk $(CUDA_O)/options
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)'$(NVCC)' $(CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$(@:.o=.ptxas) 2>&1 || \
	  { grep -v '^ptxas info' $(@:.o=.ptxas) >&2; rm -f $@; exit 1; }

$(CUDA_O)/%.c.o: %.c Makefile kernels/cuda/rules.mk
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# WANE_CUDA_ARCH has a folder of objects of its own; the library is linked anew where that has changed.
$(WANE_CUDA_OUT)/libwane_cuda.so: $(CUDA_OBJECTS) $(CUDA_O)/objects
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)'$(NVCC)' -shared -cudart static $(GENCODE) -Xlinker --exclude-libs,ALL,-z,defs -o $@.new $(CUDA_OBJECTS) \
	  -ldl -lpthread -lrt && mv -f $@.new $@

$(CUDA_O)/objects: always
	@mkdir -p $(CUDA_O) $(WANE_CUDA_OUT) && echo '$(CUDA_OBJECTS) $(WANE_CUDA_ARCH)' | cmp -s - $(WANE_CUDA_OUT)/cuda.objects || \
	  { echo '$(CUDA_OBJECTS) $(WANE_CUDA_ARCH)' > $(WANE_CUDA_OUT)/cuda.objects; touch $@; }; touch -a $@

-include $(wildcard $(CUDA_OBJECTS:.o=.d))
