# Packs and runs the checks of a real GPU, and reports what nvcc made.
#   make gpu-bundle     build/gpu/wane-gpu.tar: carried to a machine with a GPU, check.sh in it needs nothing else
#   make gpu-check      the same here; WANE_CUDA_LIB=build/cudasim: on the simulated device
#   make cuda-report    build/cuda-report.md: registers, loads and tensor instructions of each kernel, and predictions
# GPU_CHECK: options of check.sh, such as GPU_CHECK='--only gpt'.
.PHONY: gpu-bundle gpu-check cuda-report
gpu-bundle:
	@$(MAKE) --no-print-directory cuda
	@LUAJIT='$(LUAJIT)' sh spec/gpu/bundle.sh

gpu-check:
	@MAKE='$(MAKE)' sh spec/gpu/make_check.sh '$(WANE_CUDA_LIB)' $(GPU_CHECK)

cuda-report:
	@$(MAKE) --no-print-directory cuda
	$(Q)$(LUAJIT) spec/gpu/report/main.lua $(or $(WANE_CUDA_ARCH),90) build/cuda$(WANE_CUDA_ARCH)
