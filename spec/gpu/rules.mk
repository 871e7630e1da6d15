# Packs and runs the checks of a real GPU.
#   make gpu-bundle     build/gpu/wane-gpu.tar: carried to a machine with a GPU, check.sh in it needs nothing else
#   make gpu-check      the same here; WANE_CUDA_LIB=build/cudasim: on the simulated device
#   make gpu-whatif     predicts steps of GPT-2 on an H100, change by change; needs no GPU
# GPU_CHECK: options of check.sh, such as GPU_CHECK='--only gpt'.
.PHONY: gpu-bundle gpu-check gpu-whatif
gpu-whatif: all
	@$(LUAJIT) spec/gpu/whatif.lua build/gpu

gpu-bundle:
	@$(MAKE) --no-print-directory cuda
	@LUAJIT='$(LUAJIT)' sh spec/gpu/bundle.sh

gpu-check:
	@MAKE='$(MAKE)' sh spec/gpu/make_check.sh '$(WANE_CUDA_LIB)' $(GPU_CHECK)
