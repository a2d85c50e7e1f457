import {
  blockUntilReady,
  defaultDevice,
  jit,
  nn,
  numpy as np,
  tree,
  valueAndGrad,
} from '@jax-js/jax'
import { type JaxDevice, openJax } from '../../src/measure/peers/jax.ts'
import { jaxModels, type Leaves } from './jax-models.ts'
import { adam, type Batch, type StepName, type Trainer, targetsOf, type Weights } from './task.ts'

/** jax-js, written as its own README and demos write it: one `jit` over loss, gradient and update. */

export async function jaxTrainer(
  name: StepName,
  weights: Weights,
  device: JaxDevice,
): Promise<Trainer> {
  await openJax(device)
  defaultDevice(device)
  const model = jaxModels[name]
  const { rows, classes } = targetsOf[name]
  const array = (values: Float32Array<ArrayBuffer>, shape: number[]) =>
    np.array(values, { shape, device })
  let params: Leaves = Object.fromEntries(
    Object.entries(weights).map(([key, { data, shape }]) => [key, array(data.slice(), shape)]),
  )
  const names = Object.keys(params)
  const zeros = (): Leaves =>
    tree.map((leaf: np.Array) => np.zerosLike(leaf), tree.ref(params)) as Leaves
  let first = zeros()
  let second = zeros()

  const lossOf = (p: Leaves, x: np.Array, y: np.Array): np.Array =>
    nn
      .logSoftmax(model.logits(p, x))
      .mul(y)
      .sum()
      .mul(-1 / rows)
  // The step counter changes from step to step, so what depends on it comes in as data: [lr / correction 1], [1 / sqrt(correction 2)].
  const step = jit(
    (
      p: Leaves,
      m: Leaves,
      v: Leaves,
      x: np.Array,
      y: np.Array,
      rate: np.Array,
      scale: np.Array,
    ) => {
      const [loss, gradients] = valueAndGrad(lossOf)(tree.ref(p), x, y) as unknown as [
        np.Array,
        Leaves,
      ]
      const next = {} as Leaves
      const nextFirst = {} as Leaves
      const nextSecond = {} as Leaves
      for (const name of names) {
        const g = gradients[name]
        const m2 = m[name].mul(adam.beta1).add(g.ref.mul(1 - adam.beta1))
        const v2 = v[name].mul(adam.beta2).add(np.square(g).mul(1 - adam.beta2))
        const denominator = np.sqrt(v2.ref).mul(scale.ref).add(adam.eps)
        next[name] = p[name].sub(m2.ref.mul(rate.ref).div(denominator))
        nextFirst[name] = m2
        nextSecond[name] = v2
      }
      rate.dispose()
      scale.dispose()
      return [next, nextFirst, nextSecond, loss] as [Leaves, Leaves, Leaves, np.Array]
    },
  )

  let count = 0
  return {
    async step(batch: Batch, wantsLoss) {
      defaultDevice(device)
      count++
      const { data, shape } = model.inputs(batch)
      const x = array(data, shape)
      const y = array(batch.oneHotTargets, [rows, classes])
      const rate = array(Float32Array.of(adam.lr / (1 - adam.beta1 ** count)), [1])
      const scale = array(Float32Array.of(1 / Math.sqrt(1 - adam.beta2 ** count)), [1])
      const [nextParams, nextFirst, nextSecond, loss] = step(
        params,
        first,
        second,
        x,
        y,
        rate,
        scale,
      )
      params = nextParams
      first = nextFirst
      second = nextSecond
      if (wantsLoss) return (await loss.data())[0]
      loss.dispose()
      return Number.NaN
    },
    async settle() {
      await blockUntilReady([params, first, second])
    },
  }
}
