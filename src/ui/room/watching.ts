import type { JsonValue } from '../../util/json-value.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { RoomMember } from '../../worker/page/member.ts'
import type { isWatching } from '../state/room-facts.ts'
import type { Store } from '../state/store.ts'
import { ShowsRun } from './shows-run.ts'
import type { RunMaking } from './watched-run.ts'
import { WatchesRun } from './watches-run.ts'

/** What the page has loaded already: parts that come later share it without another file. */
export interface WatchingOptions extends RunMaking {
  readonly store: Store
  readonly member: Pick<RoomMember, 'sayWatch' | 'compute'>
  readonly isWatching: typeof isWatching
}

/** A tab's part in watching: with a rank it shows its run to who watches, without one it watches. Loaded when there is somebody who watches. */
export class Watching {
  readonly #store: Store
  readonly #shows: ShowsRun
  readonly #watches: WatchesRun
  readonly #isOn: () => boolean

  constructor(options: WatchingOptions) {
    const { store, member, isWatching } = options
    this.#store = store
    this.#isOn = () => isWatching(store.snapshot)
    this.#shows = new ShowsRun({
      store,
      query: (name, input) => member.compute.query(name, input),
      send: (said) => member.sayWatch(null, said),
    })
    this.#watches = new WatchesRun({
      ...options,
      send: (to, said) => member.sayWatch(to, said),
    })
  }

  /** The room as it is now. */
  roomIs(): void {
    const { snapshot } = this.#store
    if (this.#isOn()) this.#watches.roomIs()
    else {
      this.#watches.end()
      if (snapshot.run?.isWatched) this.#store.dispatch({ type: 'watched', run: null })
    }
  }

  take(from: string, said: JsonValue): void {
    if (this.#isOn()) this.#watches.take(from, said)
    else this.#shows.take(said)
  }

  query(name: string, input: unknown): Promise<QueryAnswer> {
    return this.#watches.query(name, input)
  }
}
