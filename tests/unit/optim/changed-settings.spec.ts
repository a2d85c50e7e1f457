import { describe, expect, test } from 'vitest'
import { OneCycleLR } from '../../../src/entries/optim/lr-scheduler.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Adam, AdamW } from '../../../src/optim/adam.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import type { Optimizer } from '../../../src/optim/optimizer.ts'
import { RMSprop } from '../../../src/optim/rmsprop.ts'
import { SGD } from '../../../src/optim/sgd.ts'

// Settings that arrive after compiling: numbers count at once, what chose the kernels refuses the run.

const runtime = new ReferenceRuntime()
const parameter = () => new Parameter([1], Float32Array.of(4))

test('a scheduler that is stepped in the compiled function is refused', async () => {
  const optimizer = new SGD([parameter()], { lr: 1, momentum: 0.9 })
  const scheduler = new OneCycleLR(optimizer, 1, { totalSteps: 4 })
  const step = () => {
    scheduler.step()
    return {}
  }
  await expect(compile(step, {}, { runtime })).rejects.toThrow(
    /^OneCycleLR.step: called in a function that is being compiled/,
  )
})

test('a gradient that is no tensor is refused', async () => {
  const one = parameter()
  const set = () => {
    one.grad = Float32Array.of(1) as never
    return {}
  }
  const hook = () => {
    const hidden = one.mul(2)
    hidden.registerHook(() => 3 as never)
    hidden.sum().backward()
    return {}
  }
  await expect(compile(set, {}, { runtime })).rejects.toThrow(/^grad: gradient must be a Tensor/)
  await expect(compile(hook, {}, { runtime })).rejects.toThrow(/^hook: .* must be a Tensor/)
})

/** A step whose gradient is the parameter itself. */
const stepOf = (optimizer: Optimizer, one: Parameter, scaler?: GradScaler) =>
  compile(
    () => {
      const loss = one.square().mul(0.5).sum()
      if (scaler) scaler.scale(loss).backward()
      else loss.backward()
      if (scaler) scaler.step(optimizer)
      else optimizer.step()
      scaler?.update()
      return {}
    },
    {},
    { runtime },
  )

type Settings = Record<string, unknown>
type Make = (parameters: Parameter[], settings: Settings) => Optimizer

const cases: [name: string, make: Make, compiled: Settings, changed: Settings, text: RegExp][] = [
  ['SGD', (p, s) => new SGD(p, s), {}, { momentum: 0.9 }, /momentum = 0 of SGD, .* now 0.9/],
  [
    'SGD',
    (p, s) => new SGD(p, s),
    { momentum: 0.9 },
    { nesterov: true },
    /nesterov = false of SGD, .* now true/,
  ],
  ['Adam', (p, s) => new Adam(p, s), {}, { amsgrad: true }, /amsgrad = false of Adam,/],
  [
    'AdamW',
    (p, s) => new AdamW(p, s),
    { amsgrad: true },
    { amsgrad: false },
    /amsgrad = true of AdamW/,
  ],
  ['RMSprop', (p, s) => new RMSprop(p, s), {}, { centered: true }, /centered = false of RMSprop/],
  ['RMSprop', (p, s) => new RMSprop(p, s), {}, { momentum: 0.9 }, /momentum = 0 of RMSprop/],
]

describe.each(cases)('%s', (_, make, compiled, changed, text) => {
  const refused = async (change: (optimizer: Optimizer) => Promise<void> | void) => {
    const one = parameter()
    const optimizer = make([one], compiled)
    const step = await stepOf(optimizer, one)
    await step.run({})
    const before = await one.read()
    await change(optimizer)
    const run = (async () => step.run({}))()
    await expect(run).rejects.toThrow(text)
    await expect(run).rejects.toMatchObject({ code: 'graph.misuse' })
    expect(await one.read()).toEqual(before)
    await (await stepOf(optimizer, one)).run({})
    expect(await one.read()).not.toEqual(before)
  }

  test(`${JSON.stringify(compiled)} to ${JSON.stringify(changed)}, set live`, () =>
    refused((optimizer) => void Object.assign(optimizer.paramGroups[0], changed)))

  test(`${JSON.stringify(compiled)} to ${JSON.stringify(changed)}, loaded`, () =>
    refused(async (optimizer) => {
      const one = parameter()
      const other = make([one], { ...compiled, ...changed })
      await (await stepOf(other, one)).run({})
      optimizer.loadStateDict(await other.stateDict())
    }))
})

test('a step refuses to run when the groups are others than those it was compiled with', async () => {
  const changes: ((optimizer: SGD) => void)[] = [
    (optimizer) => optimizer.addParamGroup({ params: [parameter()] }),
    (optimizer) => optimizer.paramGroups.splice(0, 1, { ...optimizer.paramGroups[0] }),
    (optimizer) => (optimizer.paramGroups[0].params as Parameter[]).push(parameter()),
    ({ paramGroups: [{ params }] }) => Object.assign(params, { 0: parameter() }),
    ...[undefined, 'x', [parameter()]].map(
      (params) => (optimizer: SGD) => void Object.assign(optimizer.paramGroups[0], { params }),
    ),
    ...[null, 'x', [null], [{ lr: 1 }]].map(
      (paramGroups) => (optimizer: SGD) => void Object.assign(optimizer, { paramGroups }),
    ),
  ]
  for (const change of changes) {
    const one = parameter()
    const optimizer = new SGD([one])
    const step = await stepOf(optimizer, one)
    change(optimizer)
    await expect(step.run({})).rejects.toThrow(
      /^run: .* and its groups or their parameters have changed.* again/,
    )
    expect([...(await one.read())]).toEqual([4])
  }
})

test('a step refuses to run when a parameter was frozen or unfrozen for no step', async () => {
  for (const was of [true, false]) {
    const [one, other] = [parameter(), parameter()]
    const optimizer = new SGD([one, other])
    const make = () =>
      compile(
        () => {
          one.add(other).square().sum().backward()
          optimizer.step()
          return {}
        },
        {},
        { runtime },
      )
    other.requiresGrad = was
    const step = await make()
    other.requiresGrad_(!was)
    await expect(step.run({})).rejects.toThrow(
      `run: the step was compiled with requiresGrad = ${was} of a tensor [1], which is now ${!was}. Compile`,
    )
    expect(await one.read()).toEqual(await parameter().read())
    if (!was) await (await make()).run({})
    else other.requiresGrad = was
    await step.run({})
    expect(await one.read()).not.toEqual(await parameter().read())
  }
})

test('a step refuses to run when a group has a setting that nothing reads', async () => {
  const one = parameter()
  const optimizer = new SGD([one])
  const step = await stepOf(optimizer, one)
  Object.assign(optimizer.paramGroups[0], { learningRate: 1 })
  await expect(step.run({})).rejects.toThrow(/^SGD, group: .* got "learningRate"/)
})

test('a schedule that begins to cycle a momentum of 0 is refused too', async () => {
  const one = parameter()
  const optimizer = new SGD([one], { lr: 0.1 })
  const step = await stepOf(optimizer, one)
  new OneCycleLR(optimizer, 1, { totalSteps: 10 })
  await expect((async () => step.run({}))()).rejects.toThrow(/momentum = 0 of SGD/)
})

test.each([
  ['plain', undefined],
  ['with a scaler', new GradScaler({ initScale: 2 })],
])('a momentum that falls to 0 is plain descent, undamped: %s', async (_, scaler) => {
  const one = parameter()
  const optimizer = new SGD([one], { lr: 0.25, momentum: 0.5, dampening: 0.5 })
  const step = await stepOf(optimizer, one, scaler)
  await step.run({})
  expect([...(await one.read())]).toEqual([3])
  optimizer.paramGroups[0].momentum = 0
  await step.run({})
  expect([...(await one.read())]).toEqual([2.25])
})

test('a momentum of RMSprop that falls to 0 is the step without one', async () => {
  const [one, other] = [parameter(), parameter()]
  const falling = new RMSprop([one], { momentum: 0.9 })
  const without = new RMSprop([other], {})
  const steps = [await stepOf(falling, one), await stepOf(without, other)]
  // The first step of both is the same: the momentum buffer begins at 0.
  for (const step of steps) await step.run({})
  falling.paramGroups[0].momentum = 0
  for (const step of steps) await step.run({})
  expect(await one.read()).toEqual(await other.read())
})

test('betas changed in place are those of this group alone', () => {
  const betas: [number, number] = [0.8, 0.9]
  const [first, second] = [new Adam([parameter()]), new Adam([parameter()], { betas })]
  for (const { paramGroups } of [first, second]) Object.assign(paramGroups[0].betas, [0.5])
  expect(betas).toEqual([0.8, 0.9])
  expect(new Adam([parameter()]).paramGroups[0].betas).toEqual([0.9, 0.999])
})
