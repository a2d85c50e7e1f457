type Kind = 'Worker' | 'SharedWorker'
type Made<K extends Kind> = InstanceType<(typeof globalThis)[K]>

/**
 * Starts a worker, and hears its `error` events in words: what was thrown and where, or which file could not be loaded.
 *
 * The event of a missing file names none, a worker does not say its address, and bundlers want `new Worker(new URL(…))` as it stands. So
 * the address is taken where `start` calls the constructor. errors: what `start` throws.
 */
export function startWorker<K extends Kind>(
  kind: K,
  start: () => Made<K>,
  onError: (why: string, event: Event) => void,
): Made<K> {
  const own = globalThis[kind]
  let address: unknown = ''
  const construct = (target: typeof own, args: unknown[]) => {
    address = args[0]
    return Reflect.construct(target, args)
  }
  try {
    // Node has none: `start` throws.
    if (own) Reflect.set(globalThis, kind, new Proxy(own, { construct }))
    const worker = start()
    worker.addEventListener('error', (event) =>
      onError(wordsOf(event as ErrorEvent, address), event),
    )
    return worker
  } finally {
    if (own) Reflect.set(globalThis, kind, own)
  }
}

const wordsOf = ({ message, filename, lineno }: ErrorEvent, address: unknown): string =>
  message
    ? `${message} (${filename}:${lineno})`
    : `its file ${address}, or one that it imports, could not be loaded; check that the server has it`
