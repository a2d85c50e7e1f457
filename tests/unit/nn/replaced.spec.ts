import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { GELU } from '../../../src/nn/activations.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { ModuleDict, ModuleList } from '../../../src/nn/containers.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { GroupNorm, LayerNorm, RMSNorm } from '../../../src/nn/normalization.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'

// A model that changes after compiling: the step has the tensors that were there.

/** Scales by what it may have. */
class Scale extends Module {
  readonly scale: Parameter | undefined
  forward(x: Tensor): Tensor {
    return this.scale ? x.mul(this.scale) : x
  }
}

class Net extends Module {
  readonly fc = new Linear(2, 2)
  readonly body = new Sequential(new Linear(2, 2), new ReLU())
  readonly list = new ModuleList([new Linear(2, 2)])
  readonly heads = new ModuleDict({ a: new Linear(2, 2) })
  readonly norm = new BatchNorm1d(2)
  readonly plain = new Linear(2, 2, { bias: false })
  readonly empty = new Sequential(new ReLU())
  readonly act = new ReLU()
  readonly bare = new LayerNorm(2, { elementwiseAffine: false })
  readonly scales = new ModuleList([new Scale()])

  forward(x: Tensor): Tensor {
    const first = this.act.forward(this.empty.forward(this.plain.forward(this.bare.forward(x))))
    const inner = this.body.forward(this.fc.forward(first))
    const scaled = this.scales.at(0).forward(inner)
    return this.norm.forward(this.heads.get('a').forward(this.list.at(0).forward(scaled)))
  }
}

const evaluating = (model: Module) =>
  compile(({ x }) => ({ y: model.forward(x) }), { x: tensorType([1, 2]) }, { device: 'reference' })
const x = Float32Array.of(1, 2)
const linear = () => new Linear(2, 2)
const set = (object: object, values: object) => void Object.assign(object, values)

test.each<[what: string, named: string, change: (model: Net) => unknown]>([
  [
    'a parameter',
    'fc.weight',
    ({ fc }) => set(fc, { weight: new Parameter([2, 2], new Float32Array(4)) }),
  ],
  ['a parameter that goes', 'fc.bias', ({ fc }) => set(fc, { bias: undefined })],
  ['a module', 'fc.weight', (model) => set(model, { fc: linear() })],
  ['a module around others', 'body.0.weight', (model) => set(model, { body: new Sequential() })],
  ['a module of a sequence', 'body.0.weight', ({ body }) => body.set(0, linear())],
  ['a module of a list', 'list.0.weight', ({ list }) => list.insert(0, linear())],
  ['a module of a dict', 'heads.a.weight', ({ heads }) => heads.set('a', linear())],
  [
    'a buffer',
    'norm.running_mean',
    ({ norm }) => set(norm, { runningMean: new ModuleBuffer([2], new Float32Array(2)) }),
  ],
])(
  'a run names what it was compiled with when the model has other: %s',
  async (_, named, change) => {
    const model = new Net().eval()
    const step = await evaluating(model)
    await step.run({ x })
    change(model)
    await expect(step.run({ x })).rejects.toThrow(
      `run: the step was compiled with "${named}", in whose place the model now has something else.`,
    )
  },
)

test.each<[what: string, error: string, change: (model: Net) => unknown]>([
  [
    'a bias where there was none',
    'parameters or layers of a Linear than it has now.',
    ({ plain }) => set(plain, { bias: new Parameter([2], new Float32Array(2)) }),
  ],
  [
    'a weight where there was none in the layer',
    'parameters or layers of a LayerNorm than it has now.',
    ({ bare }) => set(bare, { weight: new Parameter([2], new Float32Array(2)) }),
  ],
  [
    'a parameter in a layer of a list that had none',
    'parameters or layers of a Net than it has now.',
    ({ scales }) => set(scales.at(0), { scale: new Parameter([2], new Float32Array(2)) }),
  ],
  [
    'another layer without parameters',
    'parameters or layers of a Net than it has now.',
    (model) => set(model, { act: new GELU() }),
  ],
  [
    'another of a sequence',
    'parameters or layers of a Sequential than it has now.',
    ({ body }) => body.set(1, new GELU()),
  ],
  [
    'one more in a sequence',
    'parameters or layers of a Sequential than it has now.',
    ({ body }) => body.append(linear()),
  ],
  [
    'one more in a list',
    'parameters or layers of a ModuleList than it has now.',
    ({ list }) => list.append(linear()),
  ],
  [
    'one more in a dict',
    'parameters or layers of a ModuleDict than it has now.',
    ({ heads }) => heads.set('b', linear()),
  ],
  [
    'one more in a property',
    'parameters or layers of a Linear than it has now.',
    ({ fc }) => set(fc, { after: linear() }),
  ],
  [
    'one more in a sequence without parameters',
    'parameters or layers of a Sequential than it has now.',
    ({ empty }) => empty.append(new ReLU()),
  ],
])(
  'a run says that the model has other layers than it was compiled with: %s',
  async (_, error, change) => {
    const model = new Net().eval()
    const step = await evaluating(model)
    await step.run({ x })
    change(model)
    await expect(step.run({ x })).rejects.toThrow(`run: the step was compiled with other ${error}`)
    await (await evaluating(model)).run({ x })
  },
)

test('a step that computes gradients is refused when a parameter was frozen since, one that does not runs on', async () => {
  const model = new Net().eval()
  const step = await compile(
    ({ x }) => {
      model.forward(x).sum().backward()
      return { gradient: model.fc.weight.grad! }
    },
    { x: tensorType([1, 2]) },
    { device: 'reference' },
  )
  const forward = await evaluating(model)
  model.fc.weight.requiresGrad = false
  await expect(step.run({ x })).rejects.toThrow(
    'run: the step was compiled with requiresGrad = true of "fc.weight", which is now false.',
  )
  await forward.run({ x })
})

test('a step runs on when what it reads is in no module, or in none when it was compiled', async () => {
  const model = new Net().eval()
  const [{ fc }, alone] = [model, new Parameter([2], Float32Array.of(3, 4))]
  const first = await evaluating(model)
  model.body.append(new ReLU())
  set(model, { fc: linear() })
  const step = await compile(({ x }) => ({ y: fc.forward(x.add(alone)) }), first.prepared.inputs, {
    device: 'reference',
  })
  set(model, { fc: linear() })
  await step.run({ x })
})

test.each([true, false])(
  'a step refuses to run when no step was compiled in the mode that the model has (%s)',
  async (was) => {
    const model = new Sequential(new Linear(2, 2), new Dropout(0.5)).train(was)
    const step = await evaluating(model)
    model.train(!was)
    await expect(step.run({ x })).rejects.toThrow(
      `run: the step was compiled with Dropout in ${was ? 'training' : 'evaluation'} mode, `,
    )
    const other = await evaluating(model)
    for (const mode of [was, !was]) {
      model.train(mode)
      for (const one of [step, other]) await one.run({ x })
    }
  },
)

test('a step whose function sets the mode itself runs in either', async () => {
  const model = new Sequential(new Linear(2, 2), new Dropout(0.5))
  const step = await compile(
    ({ x }) => ({ y: model.evaluating(() => model.forward(x)) }),
    { x: tensorType([1, 2]) },
    { device: 'reference' },
  )
  for (const mode of [true, false]) {
    model.train(mode)
    await step.run({ x })
  }
})

test('a run of a norm alone is refused once it has a weight where there was none', async () => {
  const norms = [
    new RMSNorm(2, { elementwiseAffine: false }),
    new GroupNorm(1, 2, { affine: false }),
  ]
  for (const norm of norms) {
    const step = await evaluating(norm)
    await step.run({ x })
    set(norm, { weight: new Parameter([2], new Float32Array(2)) })
    await expect(step.run({ x })).rejects.toThrow(
      'run: the step was compiled with other parameters',
    )
  }
})

test('a run is refused once a parameter was replaced that the step only updates', async () => {
  const model = new Linear(2, 2)
  const optimizer = new SGD(model.parameters(), { lr: 1 })
  const step = await compile(
    ({ x }) => {
      // No output needs the forward, and this gradient no weight.
      model.forward(x).sum().backward()
      optimizer.step()
      return {}
    },
    { x: tensorType([1, 2]) },
    { device: 'cpu' },
  )
  set(model, { weight: new Parameter([2, 2], new Float32Array(4)) })
  await expect(step.run({ x })).rejects.toThrow('run: the step was compiled with "weight"')
})
