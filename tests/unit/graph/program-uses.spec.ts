import { describe, expect, test, vi } from 'vitest'
import { GradScaler } from '../../../src/entries/amp.ts'
import {
  compile,
  compileAccumulated,
  stepScalar,
  type Tensor,
  tensorType,
} from '../../../src/entries/index.ts'
import { sampleCount } from '../../../src/entries/metrics.ts'
import { mseLoss } from '../../../src/entries/nn/functional.ts'
import { clipGradNorm, Linear, Module, Sequential } from '../../../src/entries/nn.ts'
import { ExponentialMovingAverage, SGD } from '../../../src/entries/optim.ts'
import { type ScalarSlot, setSwitches } from '../../../src/entries/runtime.ts'

// Wrong uses of compiled programs that nothing else would notice, or only JavaScript.

const types = { x: tensorType([2, 2]) }
const x = Float32Array.of(1, 2, 3, 4)
const refused = (text: RegExp) =>
  expect.objectContaining({ code: 'graph.misuse', message: expect.stringMatching(text) })

const compiled = () => compile(({ x }) => ({ y: x.exp() }), types, { device: 'reference' })

test.each([
  ['Map', new Map([['y', 1]])],
  ['Date', new Date(0)],
  ['Float32Array', x],
])('compile refuses a function that returns a %s', async (what, returned) => {
  const program = compile((() => returned) as never, {}, { device: 'reference' })
  await expect(program).rejects.toThrow(
    new RegExp(`^compile: fn\\(\\) must be an object of tensors by name.* got .*${what}`),
  )
})

const partsOf = () => {
  const model = new Sequential(new Linear(2, 1))
  const optimizer = new SGD(model.parameters())
  const [ema, scaler] = [new ExponentialMovingAverage(model), new GradScaler()]
  return { model, optimizer, ema, scaler }
}
type Parts = ReturnType<typeof partsOf>

const training = async () => {
  const model = new Linear(2, 1)
  const optimizer = new SGD(model.parameters())
  const step = ({ x }: { x: Parameters<Linear['forward']>[0] }) => {
    const loss = model.forward(x).sum()
    loss.backward()
    optimizer.step()
    return { y: loss }
  }
  return compileAccumulated(step, types, { steps: 1, device: 'reference' })
}

describe.each([
  ['a program', compiled],
  ['an accumulated one', training],
])('%s', (_, make) => {
  test('runs by its method alone', async () => {
    const { run, destroy } = await make()
    expect(Object.keys(await run({ x }))).toEqual(['y'])
    destroy()
  })

  test('refuses runs when it was destroyed, and a second destroy does nothing', async () => {
    const program = await make()
    program.destroy()
    program.destroy()
    await expect(program.run({ x })).rejects.toEqual(refused(/^\w+: the program was destroyed\. /))
  })

  test('refuses numbers under a name that it does not have, not texts', async () => {
    const program = await make()
    for (const wrong of [x, { data: x }, [1, 2], 3, null]) {
      const run = async () => program.run({ x, weights: wrong as never })
      await expect(run()).rejects.toEqual(refused(/^run: "weights" is none of the inputs .*: x\. /))
    }
    await program.run({ x, file: ['a.png'], absent: undefined as never })
  })

  test('refuses scalars that are no object', async () => {
    const program = await make()
    for (const scalars of [2, null, 'a', [1], () => 1] as never[])
      await expect((async () => program.run({ x }, scalars))()).rejects.toThrow(
        /^run: scalars must be an object/,
      )
  })
})

test('a program refuses the options of an accumulated run, which nothing would read', async () => {
  const program = await compiled()
  const run = program.run as (...given: unknown[]) => Promise<unknown>
  await expect(run({ x }, {}, { last: false })).rejects.toThrow(
    /^run: argument 3 must be omitted \(only compileAccumulated has options here\), got an object with last/,
  )
  await run({ x }, {}, undefined)
})

test('a shadow refuses scalars that are no object', async () => {
  const program = await compiled()
  for (const scalars of [2, null, 'a', [1], () => 1] as never[])
    await expect(program.shadow(scalars)).rejects.toThrow(/scalars must be an object/)
})

test.each<[string, (own: Parts, other: Parts, loss: Tensor) => void, RegExp]>([
  [
    'no backward',
    ({ optimizer }) => optimizer.step(),
    /^optimizer.step: no parameter has a gradient. Call loss.backward\(\) first/,
  ],
  [
    'gradients that zeroGrad discards',
    ({ optimizer }, _, loss) => {
      loss.backward()
      optimizer.zeroGrad()
      optimizer.step()
    },
    /^optimizer.step: .* any more. Call zeroGrad\(\) before loss.backward\(\)/,
  ],
  [
    "another model's optimizer",
    (_, { optimizer }, loss) => {
      loss.backward()
      optimizer.step()
    },
    /^optimizer.step: the loss depends on none of these 2 parameters, but on others, as "0.bias"/,
  ],
  [
    "another model's optimizer of a scaler",
    (_, { optimizer, scaler }, loss) => {
      scaler.scale(loss).backward()
      scaler.step(optimizer)
    },
    /^scaler.step: the loss depends on none of these 2 parameters/,
  ],
  [
    "another model's parameters clipped",
    (_, { model }, loss) => {
      loss.backward()
      clipGradNorm(model.parameters(), 1)
    },
    /^clipGradNorm: the loss depends on none of these 2 parameters/,
  ],
  [
    'an empty list clipped',
    (_own, _other, loss) => {
      loss.backward()
      clipGradNorm([], 1)
    },
    /^clipGradNorm: parameters must be those of a model, got an empty list/,
  ],
  [
    "another model's average",
    ({ optimizer }, { ema }, loss) => {
      loss.backward()
      optimizer.step()
      ema.update()
    },
    /^ema.update: none of the parameters that it averages is updated .* others, as "0.bias"/,
  ],
])('a step with %s is refused by what is wrong', async (_, step, text) => {
  const [own, other] = [partsOf(), partsOf()]
  const traced = ({ x }: { x: Tensor }) => {
    const loss = own.model.forward(x).sum()
    step(own, other, loss)
    return { loss }
  }
  await expect(compile(traced, types, { device: 'reference' })).rejects.toEqual(refused(text))
})

test.each([0, Number.NaN, 1.5])('compileAccumulated names steps of %s', async (steps) => {
  const compiling = compileAccumulated(() => ({}), {}, { steps, device: 'reference' })
  await expect(compiling).rejects.toThrow(
    `compileAccumulated: steps must be a whole number of at least 1, got ${steps}.`,
  )
})

test('a module without forward is refused by its name, alone and among others', async () => {
  class Silent extends (Module as unknown as new () => Linear) {}
  for (const model of [new Silent(), new Sequential(new Linear(2, 2), new Silent())]) {
    const use = ({ x }: { x: Tensor }) => ({ y: model.forward(x) })
    await expect(compile(use, types, { device: 'reference' })).rejects.toEqual(
      refused(/^Silent: has no forward. Write forward/),
    )
  }
})

test('a run whose program is destroyed meanwhile is refused', async () => {
  const program = await compile(({ x }) => ({ y: x.exp() }), types, { device: 'cpu' })
  const running = program.run({ x })
  program.destroy()
  await expect(running).rejects.toEqual(refused(/^run: the program was destroyed\. /))
})

test('a layer whose weight was replaced by an array names it', async () => {
  const layer = new Linear(2, 2)
  Object.assign(layer, { weight: x })
  const use = ({ x }: { x: Tensor }) => ({ y: layer.forward(x) })
  await expect(compile(use, types, { device: 'reference' })).rejects.toEqual(
    refused(/^Linear: weight must be a Tensor, got Float32Array of 4/),
  )
})

test('a function that reads an undeclared input gets an error that names it', async () => {
  const uses = [
    ({ y }: Record<string, never>) => ({ z: (y as { exp(): never }).exp() }),
    ({ x, y }: Record<string, never>) => ({ z: (x as { add(other: unknown): never }).add(y) }),
  ]
  for (const use of uses) {
    await expect(compile(use as never, types, { device: 'reference' })).rejects.toEqual(
      refused(
        /^compile: .*undefined.* \(The function reads "y", which is none of its inputs: x\. To/,
      ),
    )
  }
  const part = (inputs: object) => ({ z: (inputs.constructor as unknown as Tensor).exp() })
  await expect(compile(part as never, types, { device: 'reference' })).rejects.toEqual(
    refused(/^compile: .*is not a function \(The function reads "constructor", which is none/),
  )
  const other = ({ x, y: _ }: Record<string, never>) => {
    const holder: { layer?: { forward(x: never): never } } = {}
    return { z: holder.layer!.forward(x) }
  }
  await expect(compile(other as never, types, { device: 'reference' })).rejects.toEqual(
    refused(/^compile: Cannot read properties of undefined \(reading 'forward'\) \(The function/),
  )
  for (const byPosition of [
    (x: Tensor) => ({ z: x.exp() }),
    (x: Tensor, y: Tensor) => ({ z: y.mul(x) }),
  ])
    await expect(compile(byPosition as never, types, { device: 'reference' })).rejects.toEqual(
      refused(/The function gets one object with the inputs by name\. Write \(\{ x \}\) => …\./),
    )
  const optional = ({ x, mask }: Record<string, never>) => ({ z: mask ?? x })
  await compile(optional as never, types, { device: 'reference' })
})

test('a step refuses a scalar that nothing reads, and a count that counts nothing where it is left out', async () => {
  const stepOf = (count: () => ScalarSlot, isRead: boolean) => {
    const { model, optimizer } = partsOf()
    return compile(
      ({ x }) => {
        const own = count()
        const loss = mseLoss(model.forward(x), x.sum([1], true), isRead ? { count: own } : {})
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      types,
      { device: 'reference' },
    )
  }
  const run = async (step: ReturnType<typeof stepOf>, scalars = {}) =>
    (await step).run({ x }, scalars).then(() => 'ran', String)
  const unread = stepOf(sampleCount, false)
  expect(await run(unread, { count: 1 })).toMatch(/"count" is given, but nothing .* reads it/)
  expect(await run(unread)).toBe('ran')
  const temperature = stepOf(() => stepScalar('temperature', 1), false)
  expect(await run(temperature)).toMatch(/"temperature" is made, and nothing .* reads it/)
  expect(await run(temperature, { temperature: 2 })).toMatch(/"temperature" is given, but nothing/)
  const unset = stepOf(() => stepScalar('valid'), true)
  expect(await run(unset)).toMatch(/"valid" says how many samples count, and is not given/)
  for (const valid of [0, 1, 2]) expect(await run(unset, { valid })).toBe('ran')
  expect(await run(stepOf(sampleCount, true))).toBe('ran')
})

test('a step scalar may be infinite, and must be a number', async () => {
  const program = await compile(
    ({ x }) => {
      stepScalar('scale', 1)
      return { x: x.exp() }
    },
    types,
    { device: 'reference' },
  )
  for (const scale of [Number.NaN, '2', null]) {
    await expect(program.run({ x }, { scale: scale as number })).rejects.toThrow(
      /^run: step scalar "scale" must be a number, got /,
    )
  }
  await program.run({ x }, { scale: Number.POSITIVE_INFINITY })
})

test.each<
  [what: string, use: (kept: { x: Tensor; y: Tensor; k: ScalarSlot }, x: Tensor) => Tensor]
>([
  ['tensor', ({ y }, x) => x.add(y)],
  ['tensor', ({ y }) => y],
  ['tensor', (kept) => kept.x.softmax(0)],
  ['step scalar', ({ k }, x) => x.mul(k)],
  ['step scalar', ({ k }, x) => mseLoss(x, x, { count: k })],
])('compile refuses a %s of another compile (%#)', async (what, use) => {
  const kept = {} as Parameters<typeof use>[0]
  const earlier = ({ x }: { x: Tensor }) => {
    Object.assign(kept, { x, y: x.sum(), k: stepScalar('k', 2) })
    return { y: kept.y }
  }
  await compile(earlier, types, { device: 'reference' })
  const later = compile(({ x }) => ({ y: use(kept, x) }), types, { device: 'reference' })
  await expect(later).rejects.toEqual(refused(new RegExp(`^compile: this ${what} is from another`)))
})

test('the switch variant says, once, which ops of it the step does not have', async () => {
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  setSwitches({ variant: 'foo:bar,map:naive' })
  try {
    for (let i = 0; i < 2; i++) (await compiled()).destroy()
    expect(warn.mock.calls.map(([text]) => text)).toEqual([
      expect.stringMatching(/^tabring: the switch variant names foo, which is no op of the step/),
    ])
  } finally {
    setSwitches({ variant: '' })
    warn.mockRestore()
  }
})
