import { paramDigest } from '../../ddp/hashes/param-digest.ts'
import { stepScalar } from '../../graph/functions/linear.ts'
import { Parameter } from '../../graph/trace/parameter.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { Module, StateDict } from '../../nn/module.ts'
import { sumOverRanks } from '../../parallel/tensor/sums.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { TabringError } from '../../util/errors.ts'
import type { SharedModel } from './shared-model.ts'

/** Gathers, for a hash and for files, a model of which each rank has a part. */
export function gatherModel(
  module: Module,
): Pick<SharedModel, 'module' | 'isWhole' | 'digest' | 'stateDict'> {
  let last: StateDict | undefined
  return {
    module,
    isWhole: false,
    async digest(runtime) {
      const state = await module.stateDict()
      last = state
      const whole = [...module.namedParameters()].map(([key]) => {
        const { shape, data } = state[key]
        return new Parameter(shape, data as Float32Array<ArrayBuffer>)
      })
      return paramDigest(whole, runtime)
    },
    async stateDict() {
      if (last) return last
      throw new TabringError(
        'graph.misuse',
        'stateDict: the ranks have parts of the model until training ends. Call it after the last step.',
      )
    },
  }
}

/** The mean over the samples of ranks, of the mean over this rank's; inside a step. */
export const meanOver =
  (ranks: CollectiveGroup) =>
  (value: Tensor): Tensor =>
    ranks.size === 1 ? value : sumOverRanks(value.detach().mul(stepScalar(gradientWeight)), ranks)
