import type { JsonValue } from '../../util/json-value.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { RoomMember } from '../../worker/page/member.ts'
import type { Acts } from '../state/acts.ts'
import { isWatching } from '../state/room-facts.ts'
import type { Store } from '../state/store.ts'
import { ShowsRun } from './shows-run.ts'
import { WatchesRun } from './watches-run.ts'

/** A tab's part in watching: with a rank it shows its run to who watches, without one it watches. Loaded when there is somebody who watches. */
export class Watching {
  readonly #store: Store
  readonly #shows: ShowsRun
  readonly #watches: WatchesRun

  constructor(store: Store, member: Pick<RoomMember, 'sayWatch'>, query: Acts['query']) {
    this.#store = store
    this.#shows = new ShowsRun({ store, query, send: (said) => member.sayWatch(null, said) })
    this.#watches = new WatchesRun({ store, send: (to, said) => member.sayWatch(to, said) })
  }

  /** The room as it is now. */
  roomIs(): void {
    const { snapshot } = this.#store
    if (isWatching(snapshot)) this.#watches.roomIs()
    else {
      this.#watches.end()
      if (snapshot.run?.isWatched) this.#store.dispatch({ type: 'watched', run: null })
    }
  }

  take(from: string, said: JsonValue): void {
    if (isWatching(this.#store.snapshot)) this.#watches.take(from, said)
    else this.#shows.take(said)
  }

  query(name: string, input: unknown): Promise<QueryAnswer> {
    return this.#watches.query(name, input)
  }
}
