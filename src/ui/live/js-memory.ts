import { useEffect, useState } from 'preact/hooks'

/** What JavaScript holds in this tab. units: bytes. */
export interface JsMemory {
  readonly page: number
  /** Of all of its workers: a rank has one. */
  readonly workers: number
}

/** A part of what the browser answers; pages that are isolated may ask, in Chromium alone. */
export interface MemoryPart {
  readonly bytes: number
  readonly types: readonly string[]
  readonly attribution: readonly { readonly scope?: string }[]
}

type Measure = () => Promise<{ readonly breakdown: readonly MemoryPart[] }>

/** The browser measures with its next garbage collection, which it would else not make as often. units: ms. */
const pauseMs = 45_000

export function jsMemoryOf(breakdown: readonly MemoryPart[]): JsMemory {
  const sumOf = (scope: string) =>
    breakdown
      .filter(
        ({ types, attribution }) => types.includes('JavaScript') && attribution[0]?.scope === scope,
      )
      .reduce((sum, { bytes }) => sum + bytes, 0)
  return { page: sumOf('Window'), workers: sumOf('DedicatedWorkerGlobalScope') }
}

/** Measured about every minute while `isOn` and the tab is seen; null before the first answer, and where the browser does not measure it. */
export function useJsMemory(isOn: boolean): JsMemory | null {
  const [memory, setMemory] = useState<JsMemory | null>(null)
  useEffect(() => {
    const { measureUserAgentSpecificMemory: measure } = performance as Performance & {
      measureUserAgentSpecificMemory?: Measure
    }
    if (!isOn || !measure) return
    let isOver = false
    let timer = 0
    const again = () => {
      timer = window.setTimeout(() => void once(), pauseMs)
    }
    const once = async () => {
      if (document.hidden) return again()
      // A browser that has the function may still refuse it; it will the next time too.
      const answer = await measure.call(performance).catch(() => null)
      if (isOver || !answer) return
      setMemory(jsMemoryOf(answer.breakdown))
      again()
    }
    void once()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [isOn])
  return memory
}
