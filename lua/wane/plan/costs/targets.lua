--- Targets: machines that a plan can be made for, with rates in FLOP/s and bytes/s, from their data sheets but for the
-- H100's, which was measured; plan.costs says which.
--
-- * classes: rates of classes of applications (plan/costs/rates.lua), which go before these.
-- * f64, f32: rates outside tensor cores; bf16: rate of dense tensor products summed in f32.
-- * bytes: bandwidth of device memory; memory: its size.
-- * launch: seconds that each application costs beside its roofline; an assumption, not from a data sheet.
-- * to_host, from_host: PCIe x16 in each direction, generation 5 on the H200, generation 4 on the others.
-- * to_disk, from_disk: a fast NVMe drive, an assumption.
--
-- Sources: NVIDIA H200 Tensor Core GPU data sheet (2024, SXM); NVIDIA A100 Tensor Core GPU data sheet (2021, 80 GB
-- SXM); NVIDIA Ada GPU Architecture white paper (2022, appendix A: GeForce RTX 4090).
-- @internal wane.plan.costs.targets
local classes = require 'wane.plan.costs.rates'

local T, G = 1e12, 1e9

return {
    h100 = { cuda = true, f64 = 34 * T, f32 = 50 * T, bf16 = 750 * T, bytes = 2580 * G, launch = 1e-6, memory = 80 * G,
        to_host = 64 * G, from_host = 64 * G, to_disk = 5 * G, from_disk = 6 * G, classes = classes.h100,
        source = 'rates ' .. classes.h100.source },
    h200 = { cuda = true, f64 = 34 * T, f32 = 67 * T, bf16 = 989 * T, bytes = 4800 * G, launch = 3e-6, memory = 141 * G,
        to_host = 64 * G, from_host = 64 * G, to_disk = 5 * G, from_disk = 6 * G, classes = classes.h200,
        source = 'NVIDIA H200 data sheet, SXM; rates of classes of ops ' .. classes.h200.source },
    a100 = { cuda = true, f64 = 9.7 * T, f32 = 19.5 * T, bf16 = 312 * T, bytes = 2039 * G, launch = 3e-6,
        memory = 80 * G, to_host = 32 * G, from_host = 32 * G, to_disk = 5 * G, from_disk = 6 * G,
        source = 'NVIDIA A100 data sheet, 80 GB SXM' },
    rtx4090 = { cuda = true, f64 = 1.29 * T, f32 = 82.6 * T, bf16 = 165.2 * T, bytes = 1008 * G, launch = 3e-6,
        memory = 24 * G, to_host = 32 * G, from_host = 32 * G, to_disk = 5 * G, from_disk = 6 * G,
        source = 'NVIDIA Ada architecture white paper' },
}
