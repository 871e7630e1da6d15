--- Says which promise of a page each spec file checks that no row of spec/mutants names: file = { page =, says = words
-- of that page }. spec/mutants_spec.lua holds it to the pages: a file that keeps no promise and catches no mutant is
-- merged into another one, or goes.
return {
    ['spec/cuda_absent_spec.lua'] = { page = 'kernels/cuda/README.md', says = 'or why there is none' },
    ['spec/cuda_attention_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'agree within the tolerances of `spec/support/cuda_bits.lua`' },
    ['spec/cuda_fault_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'every later call says so and names the instructions' },
    ['spec/cuda_graph_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'The bits are those of single launches' },
    ['spec/cuda_heap_spec.lua'] = { page = 'kernels/cuda/README.md', says = 'Memory comes from a heap over segments' },
    ['spec/cuda_lt_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'Where cuBLASLt is found it computes the products of bf16' },
    ['spec/cuda_timing_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'those between two events of the GPU around each' },
    ['spec/cuda_bundle_spec.lua'] = { page = 'kernels/cuda/README.md',
        says = 'for a machine where nothing can be installed' },
    ['spec/gpu_spec.lua'] = { page = 'kernels/cuda/README.md', says = 'makes data of reports and publishes them' },
    ['spec/bench_spec.lua'] = { page = 'spec/README.md', says = 'compares the pages with the data' },
    ['spec/suite_spec.lua'] = { page = 'spec/README.md', says = 'a file whose process gives no count is a failure' },
}
