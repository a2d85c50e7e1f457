import { ShapeError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import { checkOptions } from '../util/options.ts'
import { Linear, ReLU } from './layers.ts'
import { Sequential } from './module.ts'

/** Returns linear layers with ReLU between them. `sizes`: elements of a sample, of each hidden layer and of the output. */
export function mlp(options: { sizes?: readonly number[] } = {}): Sequential {
  const sizes = checkOptions('mlp', options, { sizes: 'list' }).sizes ?? [784, 256, 10]
  if (sizes.length < 2) {
    throw new ShapeError(
      'shape.unsupported',
      `mlp: expected at least two sizes, got ${quoted(sizes)}. Pass the sizes of input and output, with hidden sizes between them.`,
    )
  }
  const layers = sizes.slice(1).map((size, i) => new Linear(sizes[i], size))
  return new Sequential(...layers.flatMap((layer, i) => (i === 0 ? [layer] : [new ReLU(), layer])))
}
