import { useEffect, useState } from 'preact/hooks'
import { messageOf } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'

/** A part of the page that is loaded once it is wanted, null until then; `failure` says why it has not come. `what` names it for people. */
export function useLoaded<T>(
  what: string,
  load: () => Promise<T>,
  isWanted: boolean,
): { readonly part: T | null; readonly failure: string } {
  const [part, setPart] = useState<T | null>(null)
  const [failure, setFailure] = useState('')
  useEffect(() => {
    if (!isWanted) return
    loadPart(what, load).then(
      (loaded) => setPart(() => loaded),
      (thrown) => setFailure(messageOf(thrown)),
    )
  }, [isWanted])
  return { part, failure }
}
