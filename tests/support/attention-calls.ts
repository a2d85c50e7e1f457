import { scaledDotProductAttention } from '../../src/graph/functions/attention.ts'
import { groupNorm, layerNorm, rmsNorm } from '../../src/graph/functions/normalization.ts'
import { rotaryEmbedding, rotaryTable } from '../../src/graph/functions/rotary.ts'
import type { HostData } from '../../src/graph/memory/host-values.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { type TensorType, tensorType } from '../../src/util/shape.ts'
import text from '../golden/attention.json?raw'
import type { GoldenCase } from './golden.ts'
import { type GoldenProgram, goldenProgram } from './golden-program.ts'

/** A case of an op in tests/golden/attention.json. */
export interface AttentionCase extends GoldenCase {
  readonly op: string
  readonly attrs: Record<string, unknown>
}

/** The forward of a case on tensors by name. */
function forwardOf({ op, attrs }: AttentionCase): (x: Record<string, Tensor>) => Tensor {
  const shape = attrs['shape'] as number[]
  switch (op) {
    case 'layerNorm':
      return ({ x, weight, bias }) => layerNorm(x, shape, weight, bias)
    case 'rmsNorm':
      return ({ x, weight }) => rmsNorm(x, shape, weight, attrs['eps'] as number)
    case 'groupNorm':
      return ({ x, weight, bias }) => groupNorm(x, attrs['groups'] as number, weight, bias)
    case 'attention':
      return ({ q, k, v, mask, added }) =>
        scaledDotProductAttention(q, k, v, {
          attnMask: mask ?? added,
          isCausal: attrs['isCausal'] === true,
          scale: attrs['scale'] as number | undefined,
          enableGqa: attrs['enableGqa'] === true,
        })
    case 'rotary':
      return ({ x, table }) =>
        rotaryEmbedding(x, table, { isInterleaved: attrs['isInterleaved'] === true })
    default:
      throw new Error(`golden op ${op}: no function is known for it`)
  }
}

/** Inputs that a case has beside its tensors. */
function extraInputs({ op, attrs, inputs }: AttentionCase): Record<string, [TensorType, HostData]> {
  if (op === 'rotary') {
    const [, positions, width] = inputs['x'].shape
    return {
      table: [tensorType([positions, width / 2, 2]), rotaryTable(width, positions)],
    }
  }
  const mask = attrs['mask'] as number[][] | undefined
  if (!mask) return {}
  const type = tensorType([mask.length, 1, 1, mask[0].length])
  return { added: [type, Float32Array.from(mask.flat())] }
}

/** The program of a case: forward, and the gradients by its inputs. */
export const programOfAttention = (sample: AttentionCase): GoldenProgram =>
  goldenProgram(sample, (x) => ({ y: forwardOf(sample)(x) }), extraInputs(sample))

/** Normalization, attention and rotary embedding. */
export const attentionCases = (JSON.parse(text) as { ops: AttentionCase[] }).ops
