import { expect, test } from 'vitest'
import { GradScaler } from '../../../src/entries/amp.ts'
import { compile, ones, stack, type Tensor } from '../../../src/entries/index.ts'
import { Parameter } from '../../../src/entries/nn.ts'
import { SGD } from '../../../src/entries/optim.ts'

// Calls of a GradScaler that would leave gradients scaled, or the scale as it is for ever.

interface Parts {
  readonly scaler: GradScaler
  readonly optimizer: SGD
  readonly loss: Tensor
}

const wrong: [what: string, step: (parts: Parts) => void, text: RegExp][] = [
  [
    'step twice',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: called twice for one optimizer in one step. Remove the second call.$/,
  ],
  [
    'unscale after step',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.unscale(optimizer)
      scaler.update()
    },
    /^scaler.unscale: .*or after scaler.step, which divides too/,
  ],
  [
    'backward of the loss itself',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss)
      loss.backward()
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: backward was called on a loss that is not scaled/,
  ],
  [
    'backward of a second loss',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      loss.mul(0.1).backward()
      scaler.unscale(optimizer)
    },
    /^scaler.unscale: backward was called on a loss that is not scaled/,
  ],
  [
    'a sum of a scaled term and one that is not',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).add(loss.mul(0.1)).backward()
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: backward was called on a sum of which one term is scaled and another is not/,
  ],
  [
    'a stack of a scaled loss and one that is not',
    ({ scaler, optimizer, loss }) => {
      stack([scaler.scale(loss), loss])
        .sum()
        .backward()
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: backward was called on a sum of which/,
  ],
  [
    'a loss scaled twice',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(scaler.scale(loss).neg()).backward()
      scaler.unscale(optimizer)
    },
    /^scaler.unscale: backward was called on a loss that is scaled more than once/,
  ],
  [
    'a loss times the scale over the scale',
    ({ scaler, optimizer, loss }) => {
      const scale = scaler.scale(loss.detach())
      loss.mul(scale.div(scale.detach())).backward()
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: backward was called on a loss that is not scaled/,
  ],
  [
    'update twice',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.update()
      scaler.update()
    },
    /^scaler.update: called twice/,
  ],
  [
    'no update',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      scaler.step(optimizer)
    },
    /^scaler.step: scaler.update is not called/,
  ],
  [
    'the step of the optimizer itself',
    ({ scaler, optimizer, loss }) => {
      scaler.scale(loss).backward()
      optimizer.step()
    },
    /^scaler.scale: the loss is scaled, but scaler.step has stepped no optimizer/,
  ],
  [
    'a loss that is not scaled',
    ({ scaler, optimizer, loss }) => {
      loss.backward()
      scaler.step(optimizer)
      scaler.update()
    },
    /^scaler.step: no loss is scaled/,
  ],
]

const compiled = (enabled: boolean, step: (parts: Parts) => void) => {
  const parameter = new Parameter([1], Float32Array.of(4))
  const optimizer = new SGD([parameter])
  const scaler = new GradScaler({ enabled })
  const traced = () => {
    const loss = parameter.square().sum()
    step({ scaler, optimizer, loss })
    return { loss }
  }
  return compile(traced, {}, { device: 'reference' })
}

test.each(wrong)('a step that is compiled with %s is refused', async (_, step, text) => {
  const expected = { code: 'graph.misuse', message: expect.stringMatching(text) }
  await expect(compiled(true, step)).rejects.toMatchObject(expected)
})

const right: [what: string, loss: (scaler: GradScaler, loss: Tensor) => Tensor][] = [
  ['divided by how many steps accumulate', (scaler, loss) => scaler.scale(loss).div(4).mul(2)],
  [
    'a sum',
    (scaler, loss) =>
      scaler
        .scale(loss)
        .add(scaler.scale(loss.mul(2)).neg())
        .sub(1),
  ],
  ['stacked', (scaler, loss) => stack([scaler.scale(loss), scaler.scale(loss)]).mean()],
  ['of a sum', (scaler, loss) => scaler.scale(loss.add(loss.exp()))],
  ['and what has no gradient', (scaler, loss) => scaler.scale(loss).add(loss.detach())],
  ['relative to another', (scaler, loss) => scaler.scale(loss.div(loss.detach().add(1)))],
  ['as a function of it', (scaler, loss) => scaler.scale(loss).relu()],
  ['by a factor that is scaled', (scaler, loss) => loss.mul(scaler.scale(ones([])))],
]

test.each(right)('a scaled loss is taken: %s', async (_, lossOf) => {
  await compiled(true, ({ scaler, optimizer, loss }) => {
    lossOf(scaler, loss).backward()
    scaler.step(optimizer)
    scaler.update()
  })
})

test('a scaler that is off lets all of them pass, but a second step', async () => {
  for (const [what, step] of wrong) if (what !== 'step twice') await compiled(false, step)
})

test('a state with numbers that the constructor refuses changes nothing', async () => {
  const scaler = new GradScaler()
  const before = await scaler.stateDict()
  for (const name of Object.keys(before)) {
    for (const value of [Number.NaN, -1, Number.POSITIVE_INFINITY]) {
      expect(() => scaler.loadStateDict({ ...before, scale: 8, [name]: value })).toThrow(
        /^GradScaler: /,
      )
      expect(await scaler.stateDict()).toEqual(before)
    }
  }
})
