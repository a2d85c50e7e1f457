import type { Gpu } from '../../src/gpu/device.ts'

const shader = /* wgsl */ `
@group(0) @binding(0) var<storage, read_write> word: u32;
@compute @workgroup_size(1) fn main() { word ^= 1u; }
`

/** Flips the lowest bit of the buffer's first word on the device, ahead of whatever is submitted next. */
export function flipBit(gpu: Gpu, buffer: GPUBuffer): void {
  const { device } = gpu
  const pipeline = device.createComputePipeline({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code: shader }) },
  })
  const layout = pipeline.getBindGroupLayout(0)
  const entries = [{ binding: 0, resource: { buffer, size: 4 } }]
  const encoder = device.createCommandEncoder()
  const pass = encoder.beginComputePass()
  pass.setPipeline(pipeline)
  pass.setBindGroup(0, device.createBindGroup({ layout, entries }))
  pass.dispatchWorkgroups(1)
  pass.end()
  gpu.submit(encoder)
}
