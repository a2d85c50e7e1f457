/** Process groups, collectives, stores, and launching, as torch.distributed. */

export { type ElasticOptions, type ElasticRun, runElastic } from '../ddp/elastic/run-elastic.ts'
export { allToAll, allToAllSingle } from '../distributed/call/all-to-all.ts'
export {
  type DistributedOptions,
  type DistributedResult,
  type GroupOptions as DistributedGroupOptions,
  ReduceOp,
  type ReduceOptions,
} from '../distributed/call/call.ts'
export type { Contents as DistributedTensor } from '../distributed/call/contents.ts'
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
} from '../distributed/call/functions.ts'
export {
  batchIsendIrecv,
  irecv,
  isend,
  P2POp,
  type PointToPointOptions,
  recv,
  send,
} from '../distributed/call/messages.ts'
export {
  type MonitoredBarrierOptions,
  monitoredBarrier,
} from '../distributed/call/monitored-barrier.ts'
export {
  allGatherObject,
  broadcastObjectList,
  gatherObject,
  scatterObjectList,
} from '../distributed/call/objects.ts'
export { Work } from '../distributed/call/work.ts'
export {
  isAvailable,
  isBackendAvailable,
  isTorchelasticLaunched,
} from '../distributed/group/backends.ts'
export type { InitProcessGroupOptions } from '../distributed/group/form-group.ts'
export type { GroupArgument } from '../distributed/group/group-of.ts'
export {
  createProcessGroup,
  destroyProcessGroup,
  getProcessGroup,
  initProcessGroup,
  isInitialized,
  newGroup,
} from '../distributed/group/process-group.ts'
export {
  GroupMember,
  getBackend,
  getGlobalRank,
  getGroupRank,
  getProcessGroupRanks,
  getRank,
  getWorldSize,
} from '../distributed/group/ranks.ts'
export {
  newSubgroups,
  newSubgroupsByEnumeration,
  type Subgroups,
} from '../distributed/group/subgroups.ts'
export { type Progress, reportProgress } from '../distributed/launcher/progress.ts'
export { lendPage } from '../distributed/link/lend-page.ts'
export {
  args,
  env,
  type RankEnvironment,
  type VariableName,
} from '../distributed/rendezvous/env.ts'
export { expandNodeList } from '../distributed/rendezvous/node-list.ts'
export type { Backend, RelayChoice, Topology } from '../distributed/rendezvous/plan-links.ts'
export { rankFromSlurm, type SlurmRank, type Variables } from '../distributed/rendezvous/slurm.ts'
export { serveRank } from '../distributed/spawn/serve-rank.ts'
export { ProcessContext, type SpawnOptions, spawn } from '../distributed/spawn/spawn.ts'
export type { AlgorithmChoice } from '../peer/algorithms/algorithm-choice.ts'
export type { Algorithm as CollectiveAlgorithm } from '../peer/algorithms/operations.ts'
export type { ChunkRange } from '../peer/algorithms/plan.ts'
export type { CollectiveCounts, CollectiveOptions } from '../peer/collective/collectives.ts'
export type { CollectiveArray, ElementArray } from '../peer/collective/element.ts'
export { Float16Bits, type Float16Elements } from '../peer/collective/float16-bits.ts'
export type { GroupConfig, GroupOptions, GroupStats } from '../peer/collective/membership.ts'
export type { CollectiveSpan } from '../peer/collective/pending-collectives.ts'
export type { MessageOptions } from '../peer/group/collective-checks.ts'
export { CollectiveGroup } from '../peer/group/collective-group.ts'
export { type NewGroupOptions, ProcessGroup } from '../peer/group/group.ts'
export { type LinkMeasurement, measureLinks } from '../peer/group/measure-links.ts'
export type { NonGroupMember } from '../peer/group/non-group-member.ts'
export { ChannelLink, type ChannelLinkOptions } from '../peer/link/channel.ts'
export type { Link, LinkEnd, LinkKind, LinkStats } from '../peer/link/link.ts'
export { PortLink, type PortLinkOptions } from '../peer/link/port.ts'
export { type Refusal, SignalError } from '../peer/room/refusals.ts'
export type { RoomOptions, SocketConstructor, SocketLike } from '../peer/room/room-options.ts'
export { newRoomUrl } from '../peer/room/room-url.ts'
export type { RoomLink } from '../peer/room/secret.ts'
export type { LinkPeaks, SessionConfig, SessionStats } from '../peer/session/session-config.ts'
export { HashStore, type HashStoreOptions } from '../peer/store/hash-store.ts'
export { OpfsStore } from '../peer/store/opfs-store.ts'
export { PrefixStore } from '../peer/store/prefix-store.ts'
export type { Store } from '../peer/store/store.ts'
export { type OpenStoreOptions, openStore } from '../peer/tab/open-store.ts'
export { WebSocketStore } from '../peer/tab/web-socket-store.ts'
export type { Env as ProtocolEnv } from '../util/env.ts'
export { ProcessException, ProcessExitedException, ProcessRaisedException } from '../util/errors.ts'
