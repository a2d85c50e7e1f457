/** torch.distributed, as `import { distributed as dist } from 'tabring'`. */
export type { ProcessGroup } from '../peer/group/group.ts'
export { HashStore } from '../peer/store/hash-store.ts'
export { OpfsStore } from '../peer/store/opfs-store.ts'
export { PrefixStore } from '../peer/store/prefix-store.ts'
export type { Store } from '../peer/store/store.ts'
export { openStore } from '../peer/tab/open-store.ts'
export { WebSocketStore } from '../peer/tab/web-socket-store.ts'
export { allToAll, allToAllSingle } from './call/all-to-all.ts'
export { ReduceOp } from './call/call.ts'
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
} from './call/functions.ts'
export { batchIsendIrecv, irecv, isend, P2POp, recv, send } from './call/messages.ts'
export { monitoredBarrier } from './call/monitored-barrier.ts'
export {
  allGatherObject,
  broadcastObjectList,
  gatherObject,
  scatterObjectList,
} from './call/objects.ts'
export { Work } from './call/work.ts'
export { isAvailable, isBackendAvailable, isTorchelasticLaunched } from './group/backends.ts'
export {
  createProcessGroup,
  destroyProcessGroup,
  getProcessGroup,
  initProcessGroup,
  isInitialized,
  newGroup,
} from './group/process-group.ts'
export {
  GroupMember,
  getBackend,
  getGlobalRank,
  getGroupRank,
  getProcessGroupRanks,
  getRank,
  getWorldSize,
} from './group/ranks.ts'
export { newSubgroups, newSubgroupsByEnumeration } from './group/subgroups.ts'
export { rankFromSlurm } from './rendezvous/slurm.ts'
