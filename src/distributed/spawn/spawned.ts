import type { Store } from '../../peer/store/store.ts'

/** What a worker that `spawn` started and its page have in common. */

/** The first word of a worker, said by `serveRank`: it listens. */
export const readyWord = 'tabring rank ready'

/** The page's answer to it. */
export interface SpawnOrder {
  readonly tabringRank: number
  readonly worldSize: number
  readonly args: readonly unknown[]
  /** The page's variables: a rank inherits them, as a process does. */
  readonly variables: Readonly<Record<string, string>>
  /** A Web Lock that the worker holds as long as it lives. */
  readonly lock: string
  /** Behind it is a `SpawnHost`. */
  readonly host: MessagePort
}

/** An error as it travels. */
export interface RankFailure {
  readonly name: string
  readonly message: string
  /** Of Tabring's errors and others that have one; else empty. */
  readonly code: string
  /** With those of its causes. */
  readonly stack: string
}

/** What the page does for one worker. */
export interface SpawnHost {
  /** The worker holds its lock. */
  alive(): void
  done(result: unknown): void
  failed(failure: RankFailure): void
  /** The page, for one group. */
  lend(): MessagePort
  /** A port to the store of all ranks of this spawn. */
  openStore(): MessagePort
}

/** This worker's place among those that were started with it. */
export interface SpawnedPlace {
  readonly rank: number
  readonly worldSize: number
  lend(): Promise<MessagePort>
  openStore(): Promise<Store>
}

let place: SpawnedPlace | undefined

/** Undefined outside of workers that `spawn` started. */
export const spawnedPlace = (): SpawnedPlace | undefined => place

export function setSpawnedPlace(own: SpawnedPlace): void {
  place = own
}
