/** Functions of ways to split a step, to be used inside it: the namespace `parallel`. */

export { type RecvOptions, recv, Sent, send } from './by-hand/send-recv.ts'
export {
  gather,
  parallelApply,
  type Replica,
  replicate,
  scatter,
} from './data-parallel/replicas.ts'
