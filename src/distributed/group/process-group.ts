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
 * Joins ranks into a group; resolves when all have joined and all links are up. As `initProcessGroup`, which makes it the default one
 * besides: for several ranks in one context.
 *
 * errors: `peer.timeout`, naming the ranks that are missing; `peer.mismatch` where ranks disagree, naming both; `peer.unreachable` where two
 * cannot be linked, on all ranks; `config.invalid`; `signal.*` of the server.
 */
export function formProcessGroup(options: InitProcessGroupOptions = {}): Promise<ProcessGroup> {
  return formGroup(options, options?.signal)
}

/**
 * Joins the ranks and makes them the default group: torch.distributed.init_process_group. Resolves when all have joined.
 *
 * errors: those of `formProcessGroup`; `graph.misuse` when a group is there already; `peer.aborted` when it was destroyed meanwhile.
 */
export const initProcessGroup = (options: InitProcessGroupOptions = {}): Promise<ProcessGroup> =>
  makeDefault((ended) =>
    formGroup(options, options.signal ? AbortSignal.any([options.signal, ended]) : ended),
  )
