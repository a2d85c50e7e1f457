import type { ProcessGroup } from '../../peer/group/group.ts'
import { makeDefault } from './default-group.ts'
import { formGroup, type InitProcessGroupOptions } from './form-group.ts'

export {
  destroyProcessGroup,
  getProcessGroup,
  isInitialized,
  newGroup,
} from './default-group.ts'

/**
 * Joins ranks into a group without making it the default group, for several ranks in one context. Resolves when all ranks have joined and
 * all links are up.
 *
 * errors: `peer.timeout`, naming the missing ranks; `peer.mismatch` if ranks disagree, naming both; `peer.unreachable`, on all ranks, if two
 * cannot be linked; `config.invalid`; `signal.*` of the server.
 */
export function createProcessGroup(options: InitProcessGroupOptions = {}): Promise<ProcessGroup> {
  return formGroup(options, options?.signal, 'createProcessGroup')
}

/**
 * Joins the ranks and makes them the default group: torch.distributed.init_process_group. Resolves when all have joined.
 *
 * errors: those of `createProcessGroup`; `graph.misuse` if there is already a default group; `peer.aborted` if `destroyProcessGroup` was called
 * meanwhile.
 */
export const initProcessGroup = (options: InitProcessGroupOptions = {}): Promise<ProcessGroup> =>
  makeDefault((ended) =>
    formGroup(options, options?.signal ? AbortSignal.any([options.signal, ended]) : ended),
  )
