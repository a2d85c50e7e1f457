import { type Library, permuted, type StepName, type Weights } from './task.ts'

/** Weights as each library's own models hold them: made beforehand, as their batches are. */

type Layouts = Readonly<Record<StepName, (given: Weights) => Weights>>

/** A torch.nn.Linear's weight [out, in] as [in, out]. */
const transposed = (weights: Weights, keys: readonly string[]): Weights => ({
  ...weights,
  ...Object.fromEntries(keys.map((key) => [key, permuted(weights[key], [1, 0])])),
})

const same = (given: Weights) => given
const pytorch: Layouts = { mlp: same, cnn: same, gpt: same }
const mlp = (given: Weights) => transposed(given, ['0.weight', '2.weight'])

const jax: Layouts = { mlp, cnn: (given) => transposed(given, ['7.weight']), gpt: same }

const tfjs: Layouts = {
  mlp,
  cnn(given) {
    const { shape, data } = given['7.weight']
    const byPosition = permuted({ shape: [shape[0], 32, 7, 7], data }, [2, 3, 1, 0])
    return {
      ...given,
      '0.weight': permuted(given['0.weight'], [2, 3, 1, 0]),
      '3.weight': permuted(given['3.weight'], [2, 3, 1, 0]),
      '7.weight': { shape: [1568, shape[0]], data: byPosition.data },
    }
  },
  gpt: same,
}

export const layouts: Readonly<Record<Library, Layouts>> = {
  tabring: pytorch,
  tabringCpu: pytorch,
  jax,
  jaxWasm: jax,
  tfjs,
}
