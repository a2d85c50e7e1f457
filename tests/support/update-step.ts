import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'

/** A training step as users write it: the loss that `lossOf` makes of the inputs, its backward pass, an update; gives `loss`. */
export const updateStep =
  (optimizer: Optimizer, lossOf: (inputs: Record<string, Tensor>) => Tensor): TracedFunction =>
  (inputs) => {
    const loss = lossOf(inputs)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
