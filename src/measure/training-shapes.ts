import type { MatmulForm } from '../kernels/matmul/matmul.ts'
import type { Problem } from './matmul.ts'

/** A linear layer as training uses it: rows of a batch, input and output features. */
export type LayerShape = readonly [rows: number, inputs: number, outputs: number]

export const forms: readonly MatmulForm[] = ['nt', 'nn', 'tn']

/** Rows 1024 to 4096, features 384 to 1024; a CPU rendering of WebGPU gets what it can do in a minute or two. */
export const trainingShapes = (isSoftware: boolean): readonly LayerShape[] =>
  isSoftware
    ? [
        [256, 128, 128],
        [256, 256, 256],
      ]
    : [
        [1024, 384, 384],
        [1024, 768, 768],
        [1024, 1024, 1024],
        [2048, 384, 1024],
        [2048, 768, 768],
        [4096, 384, 384],
        [4096, 1024, 512],
        [4096, 1024, 1024],
      ]

/** The product of a layer in one form: its result (nt), its input's gradient (nn), its weight's gradient (tn). */
export const problemOf = ([rows, inputs, outputs]: LayerShape, form: MatmulForm): Problem =>
  form === 'nt'
    ? ['nt', rows, inputs, outputs]
    : form === 'nn'
      ? ['nn', rows, outputs, inputs]
      : ['tn', outputs, rows, inputs]

/** Reads `1024x384x384,64x64x64`; undefined for anything else. */
export function parseShapes(text: string): LayerShape[] | undefined {
  const shapes = text.split(',').map((part) => part.split('x').map(Number))
  const isRight = shapes.every(
    (shape) => shape.length === 3 && shape.every((size) => Number.isInteger(size) && size > 0),
  )
  return isRight ? (shapes as unknown as LayerShape[]) : undefined
}

/** The geometric mean; NaN for none. */
export const geometricMean = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length)
