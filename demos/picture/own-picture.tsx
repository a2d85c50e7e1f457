import { useEffect, useRef, useState } from 'preact/hooks'
import { Choices } from '../../src/ui/demo/choices.tsx'
import { keptInTab } from '../../src/ui/demo/kept.ts'
import { messageOf } from '../../src/util/errors.ts'
import { decodePicture } from './decode.ts'
import { maxPixelsASide } from './meta.ts'
import type { Picture } from './pixels.ts'

interface OwnPictureOptions {
  canSet: boolean
  /** It is the one to be learned. */
  isGiven: boolean
  onTake: (picture: Picture, name: string) => void
}

const sizes = [64, 128, maxPixelsASide] as const

const kept = keptInTab<{ file: File | null; longest: number }>({ file: null, longest: 128 })

/** What a person drops or chooses, decoded here: `take` a file. */
export function useOwnPicture({ canSet, isGiven, onTake }: OwnPictureOptions) {
  const [longest, setLongest] = useState(kept.value.longest)
  const [failure, setFailure] = useState<string | null>(null)
  // What was refused may be so no longer.
  useEffect(() => setFailure(null), [canSet])
  // Of two that are decoded at once the later one counts.
  const newest = useRef(0)
  const decode = async (chosen: File, side: number) => {
    newest.current += 1
    const own = newest.current
    try {
      const picture = await decodePicture(chosen, side)
      if (own !== newest.current) return
      kept.value = { file: chosen, longest: side }
      setFailure(null)
      onTake(picture, chosen.name)
    } catch (error) {
      if (own === newest.current) setFailure(messageOf(error))
    }
  }
  return {
    failure,
    longest,
    take(chosen: File | undefined) {
      if (!canSet) setFailure('Only the host can choose a picture, and not during a run.')
      else if (chosen) void decode(chosen, longest)
    },
    setLongest(side: number) {
      const { file } = kept.value
      kept.value = { file, longest: side }
      setLongest(side)
      // Another picture may be the one to learn.
      if (file && isGiven) void decode(file, side)
    },
  }
}

interface OwnPictureProps {
  own: ReturnType<typeof useOwnPicture>
  canSet: boolean
}

/** The controls of it. */
export function OwnPicture({
  own: { failure, longest, take, setLongest },
  canSet,
}: OwnPictureProps) {
  return (
    <div class="own-picture">
      <div>
        <input
          type="file"
          id="own-picture"
          class="unseen"
          accept="image/*"
          disabled={!canSet}
          onChange={(event) => {
            const { currentTarget } = event
            take(currentTarget.files?.[0])
            // The same file may be chosen again.
            currentTarget.value = ''
          }}
        />
        <label class="button" for="own-picture" data-disabled={!canSet}>
          Choose a picture…
        </label>
        <span class="quiet"> or drop one here. It stays in this room.</span>
      </div>
      {failure !== null && (
        <p class="error" role="alert">
          {failure}
        </p>
      )}
      <Choices
        label="Longest side, in pixels"
        value={String(longest)}
        isFixed={!canSet}
        choices={sizes.map((side) => ({ value: String(side), words: String(side) }))}
        onChoose={(side) => setLongest(Number(side))}
      />
    </div>
  )
}
