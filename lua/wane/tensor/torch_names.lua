--- Names of PyTorch's tensors that are written in another way here: name -> what to write, where t is the tensor.
--
-- The message about an unknown name shows it. spec/traps_spec.lua runs each line.
-- @internal wane.tensor.torch_names
return {
    T = 't:t()', mT = 't:transpose(-1, -2)', mm = 't:matmul(b)', bmm = 't:matmul(b)', mv = 't:matmul(b)',
    dot = '(t * u):sum()', outer = 't:unsqueeze(2) * u', addmm = 't + a:matmul(b)', square = 't * t',
    reciprocal = '1 / t', lerp = 't + (u - t) * 0.5', addcmul = 't + u * u',
    ['repeat'] = 't:tile(2, 2)', repeat_ = 't:tile(2, 2)', expand_as = 't:expand(u.shape)',
    view_as = 't:reshape(u.shape)', swapaxes = 't:transpose(1, 2)', ndim = 't:dim()', nelement = 't:numel()',
    clone = 't', contiguous = 't', data = 't:detach()', masked_select = 'wane.where(t:gt(0), t, 0)',
    numpy = 't:totable()', tolist = 't:totable()', multinomial = 'wane.multinomial(t, 1)',
    bernoulli = 'wane.bernoulli(t)', logical_and = 't:gt(0) * u:gt(0)', logical_not = 't:eq(0)',
    cpu = "t:to 'cpu'", cuda = "t:to 'cuda'", type = 't.dtype', is_cuda = 't.device',
    float = "t:to 'f32'", double = "t:to 'f64'", bfloat16 = "t:to 'bf16'", half = "t:to 'bf16'", int = "t:to 'i32'",
    long = "t:to 'i32'",
}
