"""dev"""
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._conversion import asarray, from_dlpack
from jaxchunk.array_api._creation import *
from jaxchunk.array_api._ranges import *
from jaxchunk.array_api._statistical import *
from jaxchunk.array_api._elementwise import *
from jaxchunk.array_api._dtypes import *
__array_api_version__ = "2025.12"
