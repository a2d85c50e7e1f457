import { type Shape, sameShape, type TensorType } from '../../util/shape.ts'
import { floatElement, wideElement } from '../half-bindings.ts'
import { reads, type ShaderBinding } from '../shader.ts'
import { broadcastIndex, type Step, stepsToWgsl } from '../steps.ts'

/** Which output of the gradient op holds what; undefined where the parameter does not exist. */
export interface GradOutputs {
  readonly weight: number | undefined
  readonly bias: number | undefined
}

/** A chain of scalar functions at the store of a tensor that is addressed by a flat index. */
export interface StoreChain {
  bindings(isWide: boolean): ShaderBinding[]
  /** The chain on `value` at element `at`. */
  scalar(value: string, at: string): { lines: string[]; result: string }
  /** The chain on the vec4 `value` at unit `at` of 4 elements. */
  wide(value: string, at: string, prefix: string): { lines: string[]; result: string }
}

const lanes = ['x', 'y', 'z', 'w']

/** Coordinates of the flat index in `shape`, as WGSL expressions. */
function coordinatesOf(shape: Shape, flat: string): string[] {
  let stride = 1
  const coordinates = new Array<string>(shape.length)
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    coordinates[axis] = `((${flat}) / ${stride}u % ${shape[axis]}u)`
    stride *= shape[axis]
  }
  return coordinates
}

/** The chain whose operands are the call's inputs from number `first`, broadcast to `output`. */
export function storeChain(
  steps: readonly Step[],
  inputs: readonly TensorType[],
  first: number,
  output: Shape,
): StoreChain {
  const operands = inputs.slice(first)
  const isFull = operands.map(({ shape }) => sameShape(shape, output))
  const scattered = (n: number, at: string) =>
    `e${n}[${broadcastIndex(output, operands[n].shape, coordinatesOf(output, at))}]`
  return {
    bindings: (isWide) =>
      operands.map((operand, n) =>
        reads(
          `e${n}`,
          { in: first + n },
          (isWide && isFull[n] ? wideElement : floatElement)(operand),
        ),
      ),
    scalar: (value, at) =>
      stepsToWgsl(steps, [
        value,
        ...operands.map((_, n) => (isFull[n] ? `e${n}[${at}]` : scattered(n, at))),
      ]),
    wide(value, at, prefix) {
      if (steps.length === 0) return { lines: [], result: value }
      const loads = operands.flatMap((_, n) =>
        isFull[n] ? [`let ${prefix}e${n} = e${n}[${at}];`] : [],
      )
      const chains = lanes.map((lane, k) =>
        stepsToWgsl(
          steps,
          [
            `${value}.${lane}`,
            ...operands.map((_, n) =>
              isFull[n] ? `${prefix}e${n}.${lane}` : scattered(n, `(${at}) * 4u + ${k}u`),
            ),
          ],
          `${prefix}${lane}`,
        ),
      )
      return {
        lines: [...loads, ...chains.flatMap(({ lines }) => lines)],
        result: `vec4<f32>(${chains.map(({ result }) => result).join(', ')})`,
      }
    },
  }
}
