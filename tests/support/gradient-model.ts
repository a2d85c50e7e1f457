import { type CompileOptions, compile } from '../../src/graph/compile/compile.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/optim.json'
import { type GoldenTensor, valuesOf } from './golden.ts'
import { testRuntime } from './run-op.ts'

/** Two parameters whose gradients are what the test says: the loss is the sum of their products with the step's inputs. */
export interface GradientModel {
  readonly a: Parameter
  readonly b: Parameter
  readonly parameters: readonly Parameter[]
}

export const goldenSteps = golden.gradients.a.shape[0]

export function gradientModel(): GradientModel {
  const make = (name: 'a' | 'b') => {
    const { shape } = golden.start[name]
    const data = Float32Array.from(valuesOf(golden.start[name] as GoldenTensor))
    const parameter = new Parameter(shape, data)
    parameter.name = name
    return parameter
  }
  const [a, b] = [make('a'), make('b')]
  return { a, b, parameters: [a, b] }
}

/** The model's parameters as they are now, one array each. */
export async function readParameters({
  parameters,
}: GradientModel): Promise<Float32Array<ArrayBuffer>[]> {
  return Promise.all(parameters.map((parameter) => parameter.read()))
}

/** The gradients of a step, from 0, as inputs of the program. */
export function goldenGradients(step: number): Record<'a' | 'b', Float32Array<ArrayBuffer>> {
  const of = (name: 'a' | 'b') => {
    const { shape } = golden.gradients[name]
    const count = shape.slice(1).reduce((product, d) => product * d, 1)
    const all = valuesOf(golden.gradients[name] as GoldenTensor)
    return Float32Array.from(all.slice(step * count, (step + 1) * count))
  }
  return { a: of('a'), b: of('b') }
}

export const gradientTypes = {
  a: tensorType(golden.gradients.a.shape.slice(1)),
  b: tensorType(golden.gradients.b.shape.slice(1)),
}

/** The loss whose gradients by the parameters are the inputs. */
export const gradientLoss = ({ a, b }: GradientModel, inputs: Record<string, Tensor>): Tensor =>
  a.mul(inputs['a']).sum().add(b.mul(inputs['b']).sum())

/** A program of one step: the loss's backward, then `finish`, which clips and updates and may return outputs. */
export async function compileGradients(
  model: GradientModel,
  finish: (loss: Tensor) => Record<string, Tensor> | undefined,
  options: CompileOptions = {},
): Promise<StepProgram> {
  return compile(
    (inputs) => {
      const loss = gradientLoss(model, inputs)
      return { loss, ...finish(loss) }
    },
    gradientTypes,
    { runtime: await testRuntime(), ...options },
  )
}
