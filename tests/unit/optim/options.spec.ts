import { describe, expect, test } from 'vitest'
import * as s from '../../../src/entries/optim/lr-scheduler.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { Adagrad } from '../../../src/optim/adagrad.ts'
import { Adam, AdamW } from '../../../src/optim/adam.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import { Lion } from '../../../src/optim/lion.ts'
import { RMSprop } from '../../../src/optim/rmsprop.ts'
import { SGD } from '../../../src/optim/sgd.ts'

// Optimizers, schedulers and what goes with them refuse options and states that are not theirs.

type Options = Record<string, unknown>
const parameters = () => [new Parameter([2], new Float32Array(2))]
const refused = (code: string, text: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(text) })

describe('optimizers', () => {
  const makers = { SGD, Adam, AdamW, RMSprop, Adagrad, Lion } as unknown as Record<
    string,
    new (
      p: unknown,
      options?: Options,
    ) => SGD
  >
  test.each(Object.keys(makers))('%s', (name) => {
    const Maker = makers[name]
    const { defaults, paramGroups } = new Maker(parameters())
    new Maker(parameters(), { ...defaults })
    // A group as another optimizer left it, with what schedulers keep in it, is a group.
    new Maker([{ ...paramGroups[0], initialLr: 1 }])
    for (const wrong of ['learningRate', 'weight_decay']) {
      const text = new RegExp(`^${name}: expected options among lr, .*, got "${wrong}"`)
      expect(() => new Maker(parameters(), { [wrong]: 1 })).toThrow(refused('config.invalid', text))
      const ofGroup = new RegExp(`^${name}, group: expected options among .*, got "${wrong}"`)
      const groups = [{ params: parameters(), [wrong]: 1 }]
      expect(() => new Maker(groups)).toThrow(refused('config.invalid', ofGroup))
      const made = new Maker(parameters())
      expect(() => made.addParamGroup(groups[0])).toThrow(refused('config.invalid', ofGroup))
      expect(made.paramGroups).toHaveLength(1)
    }
    expect(() => new Maker(parameters(), { lr: '0.1' })).toThrow(
      refused('config.invalid', /lr must be a number, got "0.1"/),
    )
  })

  test('lists with a hole are refused', () => {
    const optimizer = new SGD(parameters())
    const holed = (value: number) => Object.assign([], { 1: value }) as never
    for (const make of [
      () => new Adam(parameters(), { betas: holed(0.9) }),
      () => new s.MultiStepLR(optimizer, holed(2)),
      () => new Parameter(holed(2), new Float32Array(2)),
    ])
      expect(make).toThrow(/: .*(must be|expected) .*, got \[,(0\.9|2)\]/)
  })

  test.each([
    ['no state at all', undefined, /SGD expected an optimizer's state .* got undefined/],
    [
      'a promise',
      Promise.resolve({}),
      /with "state" and "param_groups", got a promise, which lacks an await/,
    ],
    ['a model', { 'a.weight': 1 }, /with "state" and "param_groups", got a.weight/],
    ['Adam', new Adam(parameters()), /SGD has no setting "betas"/],
    ['RMSprop', new RMSprop(parameters()), /SGD has no setting "alpha"/],
    [
      'a setting too few',
      [{ lr: 1, params: [0] }],
      /the setting "momentum" of SGD is missing, got lr/,
    ],
    ['text', [{ lr: 'high', params: [0] }], /SGD expects a number as "lr", got "high"/],
  ])('SGD refuses the state of %s, and changes nothing', async (_, other, text) => {
    const optimizer = new SGD([{ params: parameters() }], { lr: 7, momentum: 0.5 })
    const before = await optimizer.stateDict()
    const state = Array.isArray(other)
      ? { state: {}, param_groups: other }
      : other && 'stateDict' in other
        ? await (other as Adam).stateDict()
        : other
    expect(() => optimizer.loadStateDict(state as never)).toThrow(refused('data.malformed', text))
    expect(await optimizer.stateDict()).toEqual(before)
  })

  test('a state whose second group cannot be leaves the first as it was', async () => {
    const groups = () => [{ params: parameters() }, { params: parameters() }]
    const optimizer = new SGD(groups(), { lr: 7 })
    const before = await optimizer.stateDict()
    const state = await new SGD(groups(), { lr: 1 }).stateDict()
    const [first, second] = state.param_groups
    const wrong = { ...state, param_groups: [first, { ...second, lr: -1 }] }
    expect(() => optimizer.loadStateDict(wrong)).toThrow(refused('config.invalid', /lr must be/))
    expect(await optimizer.stateDict()).toEqual(before)
  })
})

test('what is no list of parameters is refused', () => {
  const model = new Sequential(new Linear(1, 1))
  const wrong: [unknown, RegExp][] = [
    [model, /^SGD: params must be a list of parameters or groups, got Sequential/],
    [undefined, /^SGD: params must be a list .* got undefined/],
    [[model], /^SGD: params\[0\] must be a parameter, got Sequential/],
    [[{ params: model }], /^SGD: params must be a list .* got Sequential/],
    [[undefined], /^SGD: params\[0\] must/],
    [[], /^SGD: params has no parameters/],
  ]
  for (const [params, text] of wrong) {
    expect(() => new SGD(params as never)).toThrow(refused('graph.misuse', text))
  }
})

test('scaler and average', async () => {
  expect(() => new GradScaler({ init_scale: 1 } as Options)).toThrow(/^GradScaler: .*"init_scale"/)
  expect(() => new GradScaler({ growthInterval: 0 })).toThrow(/growthInterval must be a whole/)
  expect(() => new ExponentialMovingAverage(parameters(), { beta: 1 } as Options)).toThrow(/"beta"/)
  const scaler = new GradScaler()
  const before = await scaler.stateDict()
  const { _growth_tracker: _, ...short } = before
  expect(() => scaler.loadStateDict({ ...short, scale: 3 } as never)).toThrow(
    refused('data.malformed', /a number as "_growth_tracker", got undefined/),
  )
  expect(() => scaler.loadStateDict(scaler.stateDict() as never)).toThrow(
    'await scaler.stateDict()',
  )
  for (const [key, value] of [['_growth_tracker', 1.5] as const, ['mine', 1] as const])
    expect(() => scaler.loadStateDict({ ...before, [key]: value } as never)).toThrow(
      new RegExp(`GradScaler.*${key}`),
    )
  expect(await scaler.stateDict()).toEqual(before)
})

const optimizer = () => new SGD(parameters(), { lr: 1, momentum: 0.9 })

/** What each scheduler requires, in PyTorch's order. */
const required: Record<string, unknown[]> = {
  StepLR: [2],
  MultiStepLR: [[1, 2]],
  CosineAnnealingLR: [3],
  CosineAnnealingWarmRestarts: [3],
  OneCycleLR: [1],
}

/** All options that each takes. */
const schedulers: Record<string, Options> = {
  StepLR: { gamma: 0.5 },
  MultiStepLR: { gamma: 0.5 },
  ConstantLR: { factor: 0.5, totalIters: 2 },
  LinearLR: { startFactor: 0.5, endFactor: 1, totalIters: 2 },
  CosineAnnealingLR: { etaMin: 0 },
  CosineAnnealingWarmRestarts: { tMult: 1, etaMin: 0 },
  OneCycleLR: {
    ...{
      totalSteps: 9,
      epochs: 3,
      stepsPerEpoch: 3,
      pctStart: 0.3,
      annealStrategy: 'cos',
    },
    ...{
      cycleMomentum: true,
      baseMomentum: 0.8,
      maxMomentum: 0.9,
      divFactor: 2,
      finalDivFactor: 3,
    },
    threePhase: true,
  },
  ReduceLROnPlateau: {
    ...{ mode: 'max', factor: 0.5, patience: 1, threshold: 0.1, thresholdMode: 'abs', cooldown: 1 },
    ...{ minLr: 0, eps: 0 },
  },
}
const makers = s as unknown as Record<string, new (o: SGD, ...rest: unknown[]) => s.StepLR>
const make = (name: string, ...options: unknown[]) =>
  new makers[name](optimizer(), ...(required[name] ?? []), ...options)

test.each(Object.entries(schedulers))('%s', (name, options) => {
  make(name, options)
  const unknown = { ...options, step_size: 1 }
  expect(() => make(name, unknown)).toThrow(
    refused('config.invalid', new RegExp(`^${name}: .* got "step_size"`)),
  )
  expect(() => make(name, 5)).toThrow(
    refused('config.invalid', new RegExp(`^${name}: expected an object`)),
  )
})

test.each([
  ['ReduceLROnPlateau', { mode: 'Max' }, /mode must be one of 'min', 'max', got "Max"/],
  ['ReduceLROnPlateau', { thresholdMode: 'relative' }, /thresholdMode must be one of 'rel', 'abs'/],
  ['ReduceLROnPlateau', { patience: -1 }, /patience must be at least 0, got -1/],
  ['OneCycleLR', { annealStrategy: 'cosine' }, /must be one of 'cos', 'linear', got "cosine"/],
  ['OneCycleLR', { divFactor: 0 }, /divFactor must be above 0, got 0/],
  ['ReduceLROnPlateau', { minLr: [-1] }, /minLr must be a number from 0 up, or one for each group/],
  ['OneCycleLR', { maxMomentum: 1 }, /maxMomentum must be a number from 0 to below 1/],
])('%s with %j', (name, wrong, text) => {
  expect(() => make(name, { ...schedulers[name], ...wrong })).toThrow(
    refused('config.invalid', text),
  )
})

describe('a state of another scheduler is refused, and changes nothing', () => {
  const all: Record<string, unknown> = { ...schedulers, ExponentialLR: 0.5 }
  const made = (name: string) => make(name, all[name])
  const names = Object.keys(all)
  const pairs = names.flatMap((name) =>
    names.filter((other) => other !== name).map((other) => [name, other]),
  )
  test.each(pairs)('%s, given that of %s', (name, other) => {
    const scheduler = made(name)
    const before = scheduler.stateDict()
    expect(() => scheduler.loadStateDict(made(other).stateDict())).toThrow(
      refused('data.malformed', new RegExp(`^loadStateDict: ${name} expected `)),
    )
    expect(scheduler.stateDict()).toEqual(before)
    scheduler.loadStateDict(JSON.parse(JSON.stringify(made(name).stateDict())))
  })

  test('of other groups, or no state', () => {
    const scheduler = made('StepLR')
    const two = new SGD([{ params: parameters() }, { params: parameters() }])
    const other = new s.StepLR(two, 1).stateDict()
    expect(() => scheduler.loadStateDict({ ...other, base_lrs: [] })).toThrow(
      /expected a list of 1 numbers from 0 up as "base_lrs", got \[\]/,
    )
    for (const nothing of [undefined, null, {}]) {
      expect(() => scheduler.loadStateDict(nothing as never)).toThrow(
        refused('data.malformed', /StepLR expected/),
      )
    }
  })

  test('of parts of a whole', () => {
    const o = optimizer()
    const parts = (gamma: number) => [new s.StepLR(o, 1, { gamma }), new s.ExponentialLR(o, gamma)]
    const whole = new s.SequentialLR(o, parts(0.5), [3])
    const before = whole.stateDict()
    const swapped = parts(0.25).reverse()
    const [first, second] = parts(0.125)
    const wrong = [
      new s.SequentialLR(o, swapped, [3]).stateDict(),
      { ...before, _schedulers: [first.stateDict(), swapped[1].stateDict()] },
      { ...before, _schedulers: [first.stateDict()] },
      new s.ChainedScheduler([first, second]).stateDict(),
      first.stateDict(),
    ]
    for (const state of wrong) {
      expect(() => whole.loadStateDict(state)).toThrow(refused('data.malformed', /loadStateDict:/))
      expect(whole.stateDict()).toEqual(before)
    }
    const right = new s.SequentialLR(o, [first, second], [3]).stateDict()
    whole.loadStateDict(right)
    expect(whole.stateDict()).toEqual(right)
  })
})
