"""One paper, one file. `METHODS` is the table the command line, the bench and the common tests go by."""

from engram.methods.chance import Chance
from engram.methods.cml_bgnn import CmlBgnn
from engram.methods.content_memory import ContentMemory
from engram.methods.covamnet import CovaMNet
from engram.methods.ctm import Ctm
from engram.methods.egnn import Egnn
from engram.methods.gnn import Gnn
from engram.methods.knn_memory import KnnMemory
from engram.methods.leo import Leo
from engram.methods.lwof import Lwof
from engram.methods.maml import Maml
from engram.methods.matching_net import MatchingNet
from engram.methods.meta_lstm import MetaLstm
from engram.methods.meta_sgd import MetaSgd
from engram.methods.param_predict import ParamPredict
from engram.methods.pixel_centroid import PixelCentroid
from engram.methods.platipus import Platipus
from engram.methods.propagation_memory import PropagationMemory
from engram.methods.proto_memory import ProtoMemory
from engram.methods.proto_net import ProtoNet
from engram.methods.relation_net import RelationNet
from engram.methods.reptile import Reptile
from engram.methods.snail import Snail
from engram.methods.stage_one import StageOne
from engram.methods.tadam import Tadam
from engram.methods.tpn import Tpn
from engram.methods.versa import Versa
from engram.methods.wdae import Wdae
from engram.types import Method

METHODS: dict[str, type[Method]] = {
    "chance": Chance,
    "pixel_centroid": PixelCentroid,
    "stage_one": StageOne,
    "proto_net": ProtoNet,
    "tadam": Tadam,
    "ctm": Ctm,
    "matching_net": MatchingNet,
    "relation_net": RelationNet,
    "covamnet": CovaMNet,
    "proto_memory": ProtoMemory,
    "knn_memory": KnnMemory,
    "propagation_memory": PropagationMemory,
    "gnn": Gnn,
    "tpn": Tpn,
    "maml": Maml,
    "reptile": Reptile,
    "meta_sgd": MetaSgd,
    "platipus": Platipus,
    "meta_lstm": MetaLstm,
    "snail": Snail,
    "versa": Versa,
    "leo": Leo,
    "lwof": Lwof,
    "param_predict": ParamPredict,
    "wdae": Wdae,
    "egnn": Egnn,
    "cml_bgnn": CmlBgnn,
    "content_memory": ContentMemory,
}
