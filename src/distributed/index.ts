/** torch.distributed, as `import { distributed as dist } from 'tabring'`. */
export { isBackendAvailable } from './backends.ts'
export {
  allGather,
  allGatherIntoTensor,
  allReduce,
  allToAll,
  barrier,
  broadcast,
  gather,
  irecv,
  isend,
  ReduceOp,
  recv,
  reduce,
  reduceScatter,
  scatter,
  send,
} from './functions.ts'
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
  getRank,
  getWorldSize,
  initProcessGroup,
  isInitialized,
  newGroup,
} from './process-group.ts'
export { Work } from './work.ts'
