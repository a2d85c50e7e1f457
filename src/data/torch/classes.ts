import { numpyClasses, setArrayState } from './numpy.ts'
import { type Calls, Dict, Known, type Outside, Refused, Unfit } from './pickle-reader.ts'
import { dtypes, isSize, isStorage, type Storage, storageTypes, viewOf } from './tensors.ts'

/**
 * Classes and functions whose calls are read: those that tensors and containers are made of. The storages that are asked for join
 * `storages`.
 *
 * `max`: what calls may copy, in characters and pairs. A pickle can give one text to many calls.
 */
export function torchClasses(max: number, storages: Map<string, Storage>): Outside {
  let copied = 0
  const spend = (count: number) => {
    copied += count
    if (copied > max) throw new Unfit('texts and pairs that are not copied again and again')
  }
  const copying: Calls = {
    '_codecs.encode': ([text]) => {
      if (typeof text !== 'string') throw new Unfit('bytes as text')
      spend(text.length)
      return Uint8Array.from(text, (character) => character.charCodeAt(0))
    },
    // Python 2 gives the pairs at once.
    'collections.OrderedDict': ([pairs = []]) => {
      const dict = new Dict()
      if (!Array.isArray(pairs)) throw new Unfit('the pairs of an OrderedDict')
      spend(pairs.length)
      for (const pair of pairs) {
        if (!Array.isArray(pair)) throw new Unfit('the pairs of an OrderedDict')
        dict.entries.set(pair[0], pair[1])
      }
      return dict
    },
  }
  const calls: Calls = { ...containers, ...tensors, ...numpyClasses, ...copying }
  return {
    find(name) {
      const today = name
        .replace(/^__builtin__\./, 'builtins.')
        .replace(/^numpy\._core\./, 'numpy.core.')
      if (Object.hasOwn(calls, today)) return new Known(today, calls[today])
      if (storageName.test(name)) return new Known(name, noStorage)
      return dtypeName.test(name) ? name : new Refused(name)
    },
    load: (id) => storageFor(id, storages),
    // Other objects' attributes are not kept.
    build: setArrayState,
  }
}

const storageName = /^torch\.(?:cuda\.|storage\.)?(\w+Storage)$/
const dtypeName = /^torch\.(bool|(b?float|q?u?int|complex|bits)\d\w*)$/
const noStorage = () => {
  throw new Unfit('a storage by its id')
}

function storageFor(id: unknown, storages: Map<string, Storage>): Storage | Refused {
  const [kind, type, key, , length, view] = Array.isArray(id) ? id : []
  // The legacy form gives the source of a module's class.
  if (kind === 'module' && type instanceof Refused) return type
  if (kind !== 'storage' || typeof key !== 'string' || !isSize(length))
    throw new Unfit('the id of a storage')
  const [, typeName = ''] = storageName.exec(type instanceof Known ? type.name : '') ?? []
  if (!Object.hasOwn(storageTypes, typeName))
    return new Refused(type instanceof Refused ? type.name : `torch.${typeName}`)
  const known = storages.get(key)
  if (known && (known.typeName !== typeName || known.length !== length))
    throw new Unfit('one type and one length for each storage')
  const { dtype, itemBytes } = storageTypes[typeName]
  const storage = known ?? {
    typeName,
    dtype,
    itemBytes,
    length,
    recordLength: length,
    key,
    begin: 0,
  }
  storages.set(key, storage)
  if (!Array.isArray(view)) return storage
  const [, begin, part] = view
  if (!isSize(begin) || !isSize(part) || begin + part > length)
    throw new Unfit('a part within its storage')
  return { ...storage, begin, length: part }
}

/** What it is made of, uncopied. */
const same = ([items = []]: readonly unknown[]): unknown => {
  if (items instanceof Refused || Array.isArray(items)) return items
  throw new Unfit('a list of what a container holds')
}
const sameDict = (args: readonly unknown[]) => args.find((one) => one instanceof Dict) ?? new Dict()
const sameBytes = ([bytes = new Uint8Array()]: readonly unknown[]): unknown => {
  if (bytes instanceof Uint8Array) return bytes
  throw new Unfit('bytes')
}

const containers: Calls = {
  'collections.defaultdict': sameDict,
  'collections.Counter': sameDict,
  'builtins.dict': sameDict,
  'builtins.list': same,
  'builtins.tuple': same,
  'builtins.set': same,
  'builtins.frozenset': same,
  'builtins.bytes': sameBytes,
  'builtins.bytearray': sameBytes,
  'torch.Size': same,
  'torch.device': ([type, index]) => {
    if (typeof type !== 'string' || type.length > 100) throw new Unfit('the name of a device')
    return typeof index === 'number' ? `${type}:${index}` : type
  },
  'torch.serialization._get_layout': ([name]) => name,
}

const ofType =
  (dtypeAt?: number) =>
  ([storage, ...view]: readonly unknown[]): unknown => {
    if (storage instanceof Refused) return storage
    if (!isStorage(storage)) throw new Unfit('a storage')
    const facts = view[(dtypeAt ?? 4) + 1]
    if (facts instanceof Dict && facts.entries.get('neg') === true)
      return new Refused('torch.Tensor that is stored negated, as x.conj().imag')
    if (dtypeAt === undefined) return viewOf(storage, view)
    const name = String(view[dtypeAt]).replace('torch.', '')
    return Object.hasOwn(dtypes, name)
      ? viewOf(storage, view, dtypes[name])
      : new Refused(`torch.Tensor of ${name}`)
  }
const parameter = ([tensor]: readonly unknown[]) => tensor
const plainTensors = /^torch\.(Tensor|_tensor\.Tensor|nn\.parameter\.(Parameter|Buffer))$/

const tensors: Calls = {
  'torch._utils._rebuild_tensor': ofType(),
  'torch._utils._rebuild_tensor_v2': ofType(),
  // Element types that have no class of storages.
  'torch._utils._rebuild_tensor_v3': ofType(5),
  'torch._utils._rebuild_parameter': parameter,
  'torch._utils._rebuild_parameter_with_state': parameter,
  // Tensors that have attributes.
  'torch._tensor._rebuild_from_type_v2': ([make, type, args]) => {
    if (!(make instanceof Known) || !Array.isArray(args)) throw new Unfit('how to make a tensor')
    return type instanceof Refused && !plainTensors.test(type.name) ? type : make.call(args)
  },
}
