/** torch.distributed, as `import { distributed as dist } from 'tabring'`. */
export type { ProcessGroup } from '../peer/group.ts'
export { HashStore } from '../peer/store/hash-store.ts'
export { openStore } from '../peer/store/open-store.ts'
export { OpfsStore } from '../peer/store/opfs-store.ts'
export { PrefixStore } from '../peer/store/prefix-store.ts'
export type { Store } from '../peer/store/store.ts'
export { WebSocketStore } from '../peer/store/web-socket-store.ts'
export { allToAll, allToAllSingle } from './all-to-all.ts'
export { isAvailable, isBackendAvailable, isTorchelasticLaunched } from './backends.ts'
export { ReduceOp } from './call.ts'
export {
  allGather,
  allGatherIntoTensor,
  allReduce,
  barrier,
  broadcast,
  gather,
  reduce,
  reduceScatter,
  reduceScatterTensor,
  scatter,
} from './functions.ts'
export { batchIsendIrecv, irecv, isend, P2POp, recv, send } from './messages.ts'
export { monitoredBarrier } from './monitored-barrier.ts'
export {
  allGatherObject,
  broadcastObjectList,
  gatherObject,
  scatterObjectList,
} from './objects.ts'
export {
  destroyProcessGroup,
  formProcessGroup,
  getProcessGroup,
  initProcessGroup,
  isInitialized,
  newGroup,
} from './process-group.ts'
export {
  GroupMember,
  getBackend,
  getGlobalRank,
  getGroupRank,
  getProcessGroupRanks,
  getRank,
  getWorldSize,
} from './ranks.ts'
export { initFromSlurm } from './slurm.ts'
export { newSubgroups, newSubgroupsByEnumeration } from './subgroups.ts'
export { Work } from './work.ts'
