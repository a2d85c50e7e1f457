import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { recv, type Sent, send } from '../../../src/parallel/by-hand/send-recv.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Ranks of one process, on the CPU, over real message channels.

const batch = 6
const types = { x: tensorType([batch, 4]), y: tensorType([batch], 'i32') }
const inputsAt = (step: number) => ({
  x: Float32Array.from({ length: batch * 4 }, (_, i) => Math.sin(i * 1.7 + step)),
  y: Int32Array.from({ length: batch }, (_, i) => (i * 7 + step) % 3),
})

/** The same layers with the same weights on every rank. */
function makeLayers(): Linear[] {
  manualSeed(7)
  return [new Linear(4, 8), new Linear(8, 8), new Linear(8, 3)]
}
const words = ({ data }: { data: ArrayBufferView }) =>
  new Uint32Array(data.buffer, data.byteOffset, data.byteLength / 4).join()

async function statesOf(layers: readonly Linear[]): Promise<string[]> {
  const states = await Promise.all(layers.map((layer) => layer.stateDict()))
  return states.flatMap((state) => Object.values(state).map(words))
}

/** A function that is compiled, the parameters that it trains, and the inputs that it reads. */
interface Written {
  readonly own: readonly Linear[]
  readonly inputs: readonly ('x' | 'y')[]
  readonly step: (given: Record<'x' | 'y', Tensor>) => Record<string, Tensor>
}

async function train({ own, inputs, step }: Written, group?: ProcessGroup) {
  const optimizer = new AdamW(
    own.flatMap((layer) => layer.parameters()),
    { lr: 0.05 },
  )
  const program = await compile(
    (given: Record<'x' | 'y', Tensor>) => {
      optimizer.zeroGrad()
      const outputs = step(given)
      optimizer.step()
      return outputs
    },
    Object.fromEntries(inputs.map((name) => [name, types[name]])) as typeof types,
    { device: 'reference', ...(group && { group }) },
  )
  const losses: number[] = []
  for (let i = 0; i < 5; i++) {
    const all = inputsAt(i)
    const outputs = await program.run(
      Object.fromEntries(inputs.map((name) => [name, all[name]])) as typeof all,
    )
    if (outputs.loss) losses.push(outputs.loss[0])
  }
  return { losses, states: await statesOf(own) }
}

const whole = (): Written => {
  const [first, second, third] = makeLayers()
  return {
    own: [first, second, third],
    inputs: ['x', 'y'],
    step({ x, y }) {
      const loss = crossEntropy(third.forward(second.forward(first.forward(x).relu()).relu()), y)
      loss.backward()
      return { loss }
    },
  }
}

/** What each of three ranks writes. */
const byRank = (rank: number): Written => {
  const layer = makeLayers()[rank]
  const onward = (hidden: Tensor): { sent: Sent } => ({ sent: send(hidden, rank + 1) })
  if (rank === 0)
    return {
      own: [layer],
      inputs: ['x'],
      step({ x }) {
        const { sent } = onward(layer.forward(x).relu())
        sent.backward()
        return {}
      },
    }
  if (rank === 1)
    return {
      own: [layer],
      inputs: [],
      step() {
        const { sent } = onward(layer.forward(recv([batch, 8], 0)).relu())
        sent.backward()
        return {}
      },
    }
  return {
    own: [layer],
    inputs: ['y'],
    step({ y }) {
      const loss = crossEntropy(layer.forward(recv([batch, 8], 1)), y)
      loss.backward()
      return { loss }
    },
  }
}

test('three ranks that send and receive by hand train to the bits of one', async () => {
  const one = await train(whole())
  const ranks = (await onRanks(3, (group) => train(byRank(group.rank), group))).map(resultOf)
  expect(ranks.map(({ losses }) => losses)).toEqual([[], [], one.losses])
  expect(ranks.flatMap(({ states }) => states)).toEqual(one.states)
})

test.each<[string, (rank: number) => () => Record<string, Tensor>, string]>([
  [
    'another shape',
    (rank) => () => {
      if (rank === 0) send(makeLayers()[0].forward(recv([2, 4], 1, { requiresGrad: false })), 1)
      else {
        send(makeLayers()[0].weight, 0)
        recv([2, 8], 0)
      }
      return {}
    },
    'transfer 0 from rank 1 to rank 0: f32[2, 4] on rank 0, transfer 0 from rank 1 to rank 0: f32[8, 4] on rank 1',
  ],
  [
    'no gradient for what was sent',
    (rank) => () => {
      const [first] = makeLayers()
      if (rank === 0) send(first.weight, 1).backward()
      else recv([8, 4], 0)
      return {}
    },
    'transfer 0 from rank 1 to rank 0: f32[8, 4] on rank 0, nothing on rank 1',
  ],
])('%s is named on both ranks before anything is sent', async (_, written, message) => {
  const ended = await onRanks(2, (group) =>
    compile(written(group.rank), {}, { device: 'reference', group }),
  )
  for (const one of ended)
    expect(one).toMatchObject({
      reason: { code: 'peer.mismatch', message: expect.stringContaining(message) },
    })
})

test('backward of what depends on no parameter is refused on both ranks', async () => {
  const ended = await onRanks(2, (group) =>
    compile(
      ({ x }: { x: Tensor }) => {
        if (group.rank === 0) send(x, 1).backward()
        else recv([batch, 4], 0)
        return {}
      },
      { x: types.x },
      { device: 'reference', group },
    ),
  )
  for (const one of ended)
    expect(one).toMatchObject({
      reason: { message: expect.stringContaining('does not depend on a parameter') },
    })
})

test('a buffer that changes after it was sent arrives as it was', async () => {
  const ended = await onRanks(2, async (group) => {
    const layer = new BatchNorm1d(4)
    const program = await compile(
      ({ x }): Record<string, Tensor> => {
        if (group.rank === 1) return { mean: recv([4], 0, { requiresGrad: false }) }
        send(layer.runningMean!, 1)
        return { y: layer.forward(x) }
      },
      { x: tensorType([batch, 4]) },
      { device: 'reference', group },
    )
    const means: number[] = []
    for (let i = 0; i < 3; i++) {
      const { mean } = await program.run({ x: new Float32Array(4 * batch).fill(10) })
      means.push(mean ? mean[0] : (await layer.runningMean!.read())[0])
    }
    return means
  })
  const [after, received] = ended.map(resultOf)
  expect(after[2]).toBeCloseTo(2.71, 5)
  expect(received).toEqual([0, after[0], after[1]])
})
