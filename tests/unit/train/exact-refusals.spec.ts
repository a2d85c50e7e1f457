import { expect, test, vi } from 'vitest'
import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../../src/ddp/data-parallel/data-parallel.ts'
import type { ExactOptions } from '../../../src/ddp/data-parallel/exact-training.ts'
import { mustFit } from '../../../src/ddp/exact/check-supported.ts'
import { evenWorkers } from '../../../src/ddp/exact/even-workers.ts'
import { ExactStep } from '../../../src/ddp/exact/exact-step.ts'
import { allreduceHook } from '../../../src/ddp/hooks/comm-hooks.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { type CompileOptions, compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { crossEntropy, sampleCount } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime, Runtime } from '../../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../../src/graph/plan/prepare.ts'
import type { StepProgram } from '../../../src/graph/plan/step-program.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { ExactOptimizer } from '../../../src/optim/exact/exact-optimizer.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import type { Optimizer } from '../../../src/optim/optimizer.ts'
import { RMSprop } from '../../../src/optim/rmsprop.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'
import { onRanks } from '../../support/ranks-of-one.ts'

test('exact refuses a SyncBatchNorm by its path', () => {
  const model = new Sequential(new Linear(3, 4), new BatchNorm1d(4))
  mustFit(model)
  const converted = SyncBatchNorm.convert(model)
  expect(() => mustFit(converted)).toThrow(/^exact: "1" is a SyncBatchNorm, .* Use BatchNorm, /)
})

test('exact refuses a model of more than 50 million parameters and says what memory it would take', () => {
  const model = new Linear(1, 1)
  const parameters = [true, false].map((requiresGrad) => ({ count: 60e6, requiresGrad }))
  model.parameters = () => parameters as Parameter[]
  expect(() => mustFit(model)).toThrow(
    'exact: expected at most 50 million parameters that are trained, got 60 million, which take 4.1 GB of host memory on each rank. Use a smaller model, or train without exact.',
  )
})

const alone = () =>
  new ProcessGroup({ rank: 0, size: 1, epoch: 0, links: new Map(), env: systemEnv })

const wrapped = (options: DistributedDataParallelOptions = {}) => {
  const model = new Linear(3, 2)
  return new DistributedDataParallel(model, { processGroup: alone(), exact: true, ...options })
}

test.each<[string, DistributedDataParallelOptions]>([
  ['aggregation: it sums', { aggregation: 'median' }],
  ['trust: it sees sums', { trust: 'strangers' }],
  ['broadcastBuffers: false: running statistics', { broadcastBuffers: false }],
  ['averageOutputs: false: a rank’s', { averageOutputs: false }],
  ['findUnusedParameters: all', { staticGraph: true }],
])('DistributedDataParallel refuses exact with %s', (words, options) => {
  expect(() => wrapped(options)).toThrow(
    new RegExp(`^DistributedDataParallel: exact does not go with ${words}.*Remove one of the two`),
  )
})

test('DistributedDataParallel refuses numbers of virtual workers and norms that cannot be', () => {
  expect(() => wrapped({ exact: { virtualWorkers: 0 } })).toThrow('virtualWorkers')
  expect(() => wrapped({ exact: { clipNorm: -1 } })).toThrow('clipNorm')
  expect(() => wrapped({ exact: 'yes' as never })).toThrow(/exact must be true, false or/)
})

test('a model with exact refuses hooks, noSync and join, and one without it has no share', async () => {
  const model = wrapped()
  expect(() => model.registerCommHook(null, allreduceHook)).toThrow(
    /^registerCommHook: the model is wrapped with exact, in which whole numbers are summed/,
  )
  expect(() => model.noSync(() => 1)).toThrow(/^noSync: the model is wrapped with exact/)
  await expect(model.join(async () => 1)).rejects.toThrow(/^join: the model is wrapped with exact/)
  await expect(model.verifySync()).rejects.toThrow(/^verifySync: no step/)
  expect(() => wrapped({ exact: false }).exactShare(8)).toThrow(/^exactShare: .* exact: true/)
})

const types = { x: tensorType([2, 3]), y: tensorType([2], 'i32') }
type Step = (model: DistributedDataParallel) => TracedFunction
const stepOf =
  (
    make: (model: DistributedDataParallel) => Optimizer<never>,
    update: (optimizer: Optimizer<never>, loss: Tensor, model: Module) => void = (optimizer) =>
      optimizer.step(),
  ): Step =>
  (model) => {
    const optimizer = make(model)
    return ({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y, { count: sampleCount() })
      loss.backward()
      update(optimizer, loss, model)
      return { loss }
    }
  }
const adamw = (model: Module) => new AdamW(model.parameters()) as unknown as Optimizer<never>
const of = (optimizer: unknown) => () => optimizer as Optimizer<never>

test.each<[string, RegExp, Step, CompileOptions?]>([
  [
    'an optimizer without a form on the host',
    /^exact: RMSprop has no update on the host with these settings\. Use one group of AdamW/,
    (model) => stepOf(of(new RMSprop(model.parameters())))(model),
  ],
  [
    'amsgrad',
    /^exact: AdamW has no update on the host with these settings/,
    (model) => stepOf(of(new AdamW(model.parameters(), { amsgrad: true })))(model),
  ],
  [
    'weight decay in SGD',
    /^exact: SGD has no update on the host with these settings/,
    (model) => stepOf(of(new SGD(model.parameters(), { weightDecay: 0.1 })))(model),
  ],
  [
    'two groups',
    /^exact: SGD has no update on the host for 2 groups/,
    (model) => {
      const groups = model.parameters().map((one) => ({ params: [one] }))
      return stepOf(of(new SGD(groups)))(model)
    },
  ],
  [
    'clipGradNorm',
    /^clipGradNorm: the model is wrapped with exact, .* \{ exact: \{ clipNorm \} \}/,
    stepOf(adamw, (optimizer, _, model) => {
      clipGradNorm(model.parameters(), 1)
      optimizer.step()
    }),
  ],
  [
    'a step without a gradient',
    /^exact: no parameter of the optimizer has a gradient/,
    (model) => {
      const optimizer = adamw(model)
      return ({ x }) => {
        optimizer.step()
        return { loss: model.forward(x).mean() }
      }
    },
  ],
  [
    'two updates',
    /^exact: optimizer\.step is called twice/,
    stepOf(adamw, (optimizer) => {
      optimizer.step()
      optimizer.step()
    }),
  ],
  [
    'outputs that are no numbers',
    /^exact: output "y" is f32\[2, 2\], and outputs are means/,
    (model) => {
      const optimizer = adamw(model)
      return ({ x }) => {
        const y = model.forward(x)
        y.mean().backward()
        optimizer.step()
        return { y }
      }
    },
  ],
  [
    'the module inside',
    /^exact: the function does not call forward of the wrapped model/,
    (model) => {
      const optimizer = adamw(model)
      return ({ x }) => {
        const loss = model.module.forward(x).mean()
        loss.backward()
        optimizer.step()
        return { loss }
      }
    },
  ],
  [
    'detectAnomaly',
    /^compile: detectAnomaly looks at one pass/,
    stepOf(adamw),
    { detectAnomaly: true },
  ],
])('compile refuses %s with exact', async (_, message, step, options) => {
  const runtime = new ReferenceRuntime()
  await expect(compile(step(wrapped()), types, { runtime, ...options })).rejects.toThrow(message)
})

test('compile refuses with exact a parameter that was frozen in the first step', async () => {
  const model = wrapped()
  const [weight] = model.parameters()
  weight.requiresGrad = false
  const step = stepOf(adamw)(model)
  const runtime = new ReferenceRuntime()
  const program = await compile(step, types, { runtime })
  program.destroy()
  weight.requiresGrad = true
  await expect(compile(step, types, { runtime })).rejects.toThrow(
    /^exact: "module\.weight" was frozen when the optimizer's first step was compiled\. Create a new/,
  )
})

test('exact refuses a device that was opened with relaxedMadd, whatever the switch is later', async () => {
  const step = stepOf(adamw)
  const opened = async (relaxedMadd: boolean) => {
    setSwitches({ relaxedMadd })
    const runtime = new Runtime(await openWasm())
    setSwitches({ relaxedMadd: !relaxedMadd })
    return runtime
  }
  const refused = /^exact: the device cpu was opened with the switch relaxedMadd, /
  vi.spyOn(WebAssembly, 'validate').mockReturnValue(true)
  try {
    const relaxed = await opened(true)
    await expect(compile(step(wrapped()), types, { runtime: relaxed })).rejects.toThrow(refused)
    const model = new Linear(3, 2)
    const [optimizer, group] = [
      new ExactOptimizer(model.parameters(), { kind: 'sgd', lr: 0.1, momentum: 0 }),
      alone(),
    ]
    const forward: TracedFunction = ({ x }) => ({ loss: model.forward(x).mean() })
    const workers = evenWorkers(8, 2, group)
    const options = { runtime: relaxed, optimizer, group, workers, virtualWorkers: 8 }
    await expect(ExactStep.create({ ...options, forward, types })).rejects.toThrow(refused)
    const plain = await opened(false)
    const program = await compile(step(wrapped()), types, { runtime: plain })
    await program.run({ x: new Float32Array(6), y: new Int32Array(2) })
    for (const { gpu } of [relaxed, plain]) gpu.close()
  } finally {
    setSwitches({ relaxedMadd: false })
    vi.restoreAllMocks()
  }
})

test('compile refuses a GradScaler, accumulation, an input without rows and a second step with exact', async () => {
  const runtime = new ReferenceRuntime()
  const scaled = (model: DistributedDataParallel): TracedFunction => {
    const [optimizer, scaler] = [new AdamW(model.parameters()), new GradScaler()]
    return ({ x }) => {
      const loss = model.forward(x).mean()
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.update()
      return { loss }
    }
  }
  await expect(compile(scaled(wrapped()), types, { runtime })).rejects.toThrow(
    /^scaler\.step: the model is wrapped with exact, .*float32 without a GradScaler/,
  )
  await expect(
    compileAccumulated(stepOf(adamw)(wrapped()), types, { runtime, steps: 2 }),
  ).rejects.toThrow(/^exact: compileAccumulated adds up float gradients/)
  const others = { ...types, mask: tensorType([3]) }
  await expect(compile(stepOf(adamw)(wrapped()), others, { runtime })).rejects.toThrow(
    /^exact: input "mask" is \[3\], but its first axis must be the 2 rows of a virtual worker/,
  )
  const model = wrapped()
  const fn = stepOf(adamw)(model)
  const first = await compile(fn, types, { runtime })
  await expect(compile(fn, types, { runtime })).rejects.toThrow(/has a compiled step already/)
  first.destroy()
  const second = await compile(fn, types, { runtime })
  await second.run({ x: new Float32Array(6), y: new Int32Array(2) })
})

test.each<[string, RegExp, Parameters<StepProgram['run']>]>([
  [
    'more rows than the rank has',
    /^run: input "x" must be an array of at most 16 rows of 3 elements, got 51 elements/,
    [{ x: new Float32Array(51), y: new Int32Array(17) }],
  ],
  [
    'other numbers of rows',
    /^run: input "y" must be an array of 4 rows of 1 elements, got 3 elements/,
    [{ x: new Float32Array(12), y: new Int32Array(3) }],
  ],
  [
    'a count of more',
    /^run: step scalar "count" must be a whole number of samples from 0 to 4, got 5/,
    [{ x: new Float32Array(12), y: new Int32Array(4) }, { count: 5 }],
  ],
  ['nothing that counts', /^run: no rank got a sample that counts/, [{}, { count: 0 }]],
])('a run with exact refuses %s', async (_, message, given) => {
  const model = wrapped()
  const program = await compile(stepOf(adamw)(model), types, { runtime: new ReferenceRuntime() })
  await expect(program.run(...given)).rejects.toThrow(message)
})

test('ranks with exact refuse rows that leave a gap, and other virtual workers, on all of them', async () => {
  const errorsOf = async (
    rows: (rank: number) => number,
    exact: (rank: number) => ExactOptions,
  ) => {
    const ends = await onRanks(2, async (group) => {
      const model = wrapped({ processGroup: group, exact: exact(group.rank) })
      const runtime = new ReferenceRuntime()
      const program = await compile(stepOf(adamw)(model), types, { runtime })
      const own = rows(group.rank)
      await program.run({ x: new Float32Array(3 * own), y: new Int32Array(own) })
    })
    return ends.map((end) => (end.status === 'rejected' ? String(end.reason.message) : ''))
  }
  const gap = await errorsOf(
    (rank) => (rank === 0 ? 3 : 4),
    () => ({ virtualWorkers: 4 }),
  )
  for (const message of gap)
    expect(message).toMatch(/^run: virtual worker 1 \(rank 0\) got 1 of 2 rows/)
  const unlike = await errorsOf(
    () => 4,
    (rank) => ({ virtualWorkers: 4 + rank }),
  )
  for (const message of unlike) expect(message).toContain('virtual workers')
})
