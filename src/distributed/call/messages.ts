import { isTag, lastExplicitBucket } from '../../peer/collective/announcement.ts'
import { nonGroupMember } from '../../peer/group/non-group-member.ts'
import { ArgumentTypeError, PeerError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { checkNumber, checkOptions, type OptionNames } from '../../util/options.ts'
import { checkRank, placeOf } from '../group/place-of.ts'
import { begin, type GroupOptions } from './call.ts'
import { arrayOf, type Contents } from './contents.ts'
import { formOf, inPlace } from './tensor-lists.ts'
import type { Work } from './work.ts'

/** Options of messages between two ranks. */
export interface PointToPointOptions extends GroupOptions {
  /** Messages with different tags may overtake each other. 0 to 65000, default 0. */
  tag?: number
}

const pairNames: OptionNames<PointToPointOptions> = { group: true, tag: true }

/** Sends the tensor to rank `dst`. Resolves when the link has taken it and the other rank has called `recv`. */
export async function send(
  tensor: Contents,
  dst: number,
  options: PointToPointOptions = {},
): Promise<void> {
  await transfer('send', tensor, dst, options).wait()
}

/** Receives a tensor from rank `src`, and returns that rank; -1 outside the group. Receiving from any rank is not supported. */
export async function recv(
  tensor: Contents,
  src: number,
  options: PointToPointOptions = {},
): Promise<number> {
  await transfer('recv', tensor, src, options).wait()
  return options.group === nonGroupMember ? -1 : src
}

/** Starts a `send` and returns its handle. */
export const isend = (tensor: Contents, dst: number, options: PointToPointOptions = {}): Work =>
  transfer('isend', tensor, dst, options)

/** Starts a `recv` and returns its handle. */
export const irecv = (tensor: Contents, src: number, options: PointToPointOptions = {}): Work =>
  transfer('irecv', tensor, src, options)

function transfer(
  where: 'send' | 'recv' | 'isend' | 'irecv',
  tensor: Contents,
  peer: number,
  options: PointToPointOptions,
): Work {
  checkOptions(where, options, pairNames)
  const { group, tag = 0 } = options
  checkNumber(where, 'tag', tag, isTag, `a whole number from 0 to ${lastExplicitBucket}`)
  const side = where.endsWith('send') ? 'send' : 'receive'
  const peerName = side === 'send' ? 'dst' : 'src'
  return begin(where, { group, asyncOp: true } as const, {
    before: () => checkRank(where, peerName, peer),
    prepare(members) {
      const place = placeOf(where, peerName, members, peer)
      members.refusingMessage(side, place, tag, {
        where,
        check: () => formOf(where, 'tensor', tensor),
      })
      const message = { tag, sequence: members.reserveMessage(side, place, tag) }
      const uses =
        side === 'send' ? { reads: [tensor], writes: [] } : { reads: [], writes: [tensor] }
      return { ...uses, place, message }
    },
    async run(members, { place, message }) {
      if (side === 'send') await members.send(await arrayOf(tensor), place, message)
      else await inPlace(tensor, (array) => members.recv(array, place, message))
    },
  })
}

/** A message for `batchIsendIrecv`: torch.distributed.P2POp. */
export class P2POp {
  readonly op: typeof isend | typeof irecv
  readonly tensor: Contents
  /** Global rank of the other side. */
  readonly peer: number
  readonly options: PointToPointOptions

  /** `op`: the function `isend` or `irecv`. errors: a TypeError for another function, or for something that is not a tensor. */
  constructor(
    op: typeof isend | typeof irecv,
    tensor: Contents,
    peer: number,
    options: PointToPointOptions = {},
  ) {
    if (op !== isend && op !== irecv) {
      throw new ArgumentTypeError(
        `P2POp: op must be the function isend or irecv, got ${kindOf(op)}. Write distributed.isend.`,
      )
    }
    formOf('P2POp', 'tensor', tensor)
    this.op = op
    this.tensor = tensor
    this.peer = peer
    this.options = checkOptions('P2POp', options, pairNames)
  }
}

/**
 * Starts all messages of a list without waiting in between, and returns their handles in the same order.
 *
 * order: messages between two ranks with the same tag are matched in the order of the lists. errors: `peer.mismatch` for an empty list, or
 * messages of several groups; a TypeError for something that is not a P2POp. Errors of a message come from its handle.
 */
export function batchIsendIrecv(p2pOpList: readonly P2POp[]): Work[] {
  const isList = Array.isArray(p2pOpList) && p2pOpList.every((one) => one instanceof P2POp)
  if (!isList) {
    throw new ArgumentTypeError(
      `batchIsendIrecv: p2pOpList must be an array of P2POps, got ${kindOf(p2pOpList)}. Write [new P2POp(isend, tensor, peer)].`,
    )
  }
  const groups = new Set(p2pOpList.map(({ options }) => options.group ?? undefined))
  if (groups.size !== 1) {
    throw new PeerError(
      'peer.mismatch',
      `batchIsendIrecv: p2pOpList must have messages of one group, got ${groups.size === 0 ? 'no message' : `messages of ${groups.size}`}. Start one batch for each group.`,
    )
  }
  return p2pOpList.map(({ op, tensor, peer, options }) => op(tensor, peer, options))
}
