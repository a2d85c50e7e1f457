import { afterEach, expect, test, vi } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { meshOf } from '../../support/process-ring.ts'

// Devices that this tab does not have: PyTorch's scripts give the rank as the device.

function stubAdapters(...architectures: string[]): void {
  const requestAdapter = async ({ powerPreference }: GPURequestAdapterOptions = {}) => {
    const architecture = architectures[powerPreference === 'low-power' ? 1 : 0]
    const info = { vendor: 'maker', architecture, device: '', description: '' }
    return architecture && powerPreference ? { info } : null
  }
  vi.stubGlobal('isSecureContext', true)
  vi.stubGlobal('navigator', { gpu: { requestAdapter } })
}
afterEach(() => vi.unstubAllGlobals())

const remedy =
  "Each tab counts its own devices from 0, not by rank: write [0] and .to(0) for PyTorch's device_ids=[rank] and .to(rank)."
const missing = (where: string, index: number) => ({
  code: 'gpu.unavailable',
  message: `${where}: this tab has webgpu:0, the only one, but not webgpu:${index}. ${remedy}`,
})

test('model.to and parameter.copyTo name the devices that there are', async () => {
  stubAdapters('one')
  await expect(new Linear(2, 2).to(1)).rejects.toMatchObject(missing('to', 1))
  await expect(new Linear(2, 2).webgpu(7)).rejects.toMatchObject(missing('to', 7))
  await expect(new Linear(2, 2).weight.copyTo(1)).rejects.toMatchObject(missing('copyTo', 1))
  await new Linear(2, 2).to(0)
  await new Linear(2, 2).to('cpu')

  stubAdapters('one', 'another')
  await new Linear(2, 2).to(1)
  await expect(new Linear(2, 2).to(2)).rejects.toThrow(
    /this tab has webgpu:0 to webgpu:1, but not webgpu:2/,
  )
})

test('deviceIds: [rank] is refused when the model is wrapped, on all ranks', async () => {
  stubAdapters('one')
  const [group] = await meshOf(1)
  const alone = new DistributedDataParallel(new Linear(2, 2), {
    processGroup: group,
    deviceIds: [7],
  })
  await expect(alone.ready).rejects.toMatchObject(missing('DistributedDataParallel', 7))

  const groups = await meshOf(3)
  const ranks = groups.map((processGroup, rank) => {
    const model = new Linear(2, 2)
    const ddp = new DistributedDataParallel(model, {
      processGroup,
      deviceIds: [rank],
      bucketCapMb: 1,
    })
    return { ddp, optimizer: new SGD(ddp.parameters(), { lr: 1 }) }
  })
  const own = (rank: number) => missing('DistributedDataParallel', rank)
  const received = {
    code: 'peer.mismatch',
    message: `DistributedDataParallel: the module cannot be trained on rank 1: ${own(1).message}; on rank 2: ${own(2).message}`,
  }
  const expected = [received, own(1), own(2)]
  // Compiling throws the same, without the advice to move the model where it cannot be.
  const compiling = ranks.map(({ ddp, optimizer }) =>
    compile(
      ({ x }) => {
        const loss = ddp.forward(x).sum()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x: tensorType([1, 2]) },
      { runtime: new ReferenceRuntime() },
    ),
  )
  const ends = await Promise.allSettled(compiling)
  expect(ends).toMatchObject(expected.map((reason) => ({ status: 'rejected', reason })))
  for (const [rank, { ddp }] of ranks.entries())
    await expect(ddp.ready).rejects.toMatchObject(expected[rank])
  for (const one of [...groups, group]) one.destroy()
})
